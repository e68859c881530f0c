"""What clients name themselves cannot forge, hide or blow up lines of the log."""

from __future__ import annotations

import asyncio
import io
import logging

import pytest

from tidelog.host.line_rate import LineRate
from tidelog.server.logs import LINE_CHARACTERS_MAX, SafeFormatter
from tidelog.testing.virtual_loop import virtual_host, virtual_time

FORGED = "2026-01-01 00:00:00,000 level=ERROR logger=tidelog.storage log offline"


def logged(message: str, *arguments: object, error: BaseException | None = None) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(SafeFormatter())
    logger = logging.Logger("tidelog.test")
    logger.addHandler(handler)
    logger.warning(message, *arguments, exc_info=error)
    text = stream.getvalue()
    assert text.endswith("\n")
    return text[:-1]


@pytest.mark.parametrize(
    ("client_id", "shown"),
    [
        (f"a\n{FORGED}", r"a\n2026"),
        ("a\r\nb", r"a\r\nb"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\u2028b\u2029c\x85d\x0be", r"a\u2028b\u2029c\x85d\x0be"),
        ("\u202egpj.exe\u2066\u200f", r"\u202egpj.exe\u2066\u200f"),
        ("\x00\x7f\x9b31m", r"\x00\x7f\x9b31m"),
        ("\udc80\U000e0001", r"\udc80\U000e0001"),
        ("größe 水", "größe 水"),
    ],
)
def test_what_is_not_printable_is_escaped(client_id: str, shown: str) -> None:
    text = logged("joined client_id=%s group=%s", client_id, "g")
    assert text.isprintable()
    assert f"client_id={shown}" in text
    assert text.endswith(" group=g")


def test_a_line_has_a_largest_length_and_says_what_was_cut() -> None:
    for character in "x", "\n", "\U000e0001":
        text = logged("client_id=%s", character * 32_768)
        assert len(text) <= 10 * LINE_CHARACTERS_MAX + 200
        assert "cut, 32" in text
        assert text.isprintable()


def test_a_traceback_stays_readable_and_forges_no_line() -> None:
    try:
        raise ValueError(f"bad name\n{FORGED}\x1b[2J")
    except ValueError as error:
        first, *trace = logged("request failed", error=error).split("\n")
    assert first.endswith("request failed")
    assert len(trace) >= 4
    assert all(line.startswith("    ") and line.isprintable() for line in trace)
    assert "Traceback (most recent call last):" in trace[0]
    assert trace[-1].endswith(r"log offline\x1b[2J")


@virtual_time
async def test_lines_of_a_kind_have_a_rate_and_the_next_one_says_how_many_there_were() -> None:
    rate = LineRate(virtual_host().clock)
    assert [rate.count("a") for _ in range(4)] == [1, 0, 0, 0]
    assert rate.count("b") == 1, "another kind is let through"
    await asyncio.sleep(9.9)
    assert rate.count("a") == 0
    await asyncio.sleep(0.2)
    assert [rate.count("a"), rate.count("a")] == [5, 0]
    await asyncio.sleep(60)
    assert rate.count("a") == 2


@virtual_time
async def test_the_kinds_of_lines_have_a_bound() -> None:
    rate = LineRate(virtual_host().clock)
    for number in range(5_000):
        assert rate.count(number) == 1
        assert rate.count(number) == 0
    assert len(rate._quiet) == 1_000
