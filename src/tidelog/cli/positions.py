"""Where to begin reading, as people write it: start, end, 1234, -10, @2026-11-15T12:00, @-1h."""

from __future__ import annotations

from tidelog.cli.faults import EXIT_USAGE, CliError
from tidelog.client.offsets import Start
from tidelog.durations import parse_duration_ms

_START = frozenset({"start", "beginning", "earliest", "oldest"})
_END = frozenset({"end", "latest", "newest"})
_HINT = (
    "start, end, an offset, -N for the last N, @TIME with a date (@2026-11-15, "
    "@2026-11-15T12:30Z), milliseconds (@1700000000000) or an age (@-1h)"
)


def parse_start(text: str, now_ms: int) -> Start:
    """The place that `text` names; ages count back from `now_ms`."""
    word = text.strip().lower()
    if word in _START:
        return Start("start")
    if word in _END:
        return Start("end")
    if word.startswith("@"):
        return Start("time", parse_time(text.strip()[1:], now_ms))
    digits = word.removeprefix("-")
    if not digits.isdecimal():
        raise CliError(f"'{text}' is no place in a log", _HINT, EXIT_USAGE)
    return Start("tail", int(digits)) if word.startswith("-") else Start("offset", int(digits))


def parse_time(text: str, now_ms: int) -> int:
    """A moment in milliseconds since 1970: a date (local unless it names a zone), ms, or an age."""
    if text.startswith("-"):
        return now_ms - _age_ms(text[1:], text)
    if text.isdecimal() and len(text) > 8:
        return int(text)
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise CliError(f"'@{text}' is no time", _HINT, EXIT_USAGE) from None


def _age_ms(text: str, whole: str) -> int:
    age_ms = parse_duration_ms(text)
    if age_ms is None:
        raise CliError(f"'@{whole}' is no age", "an age is @-90s, @-15m, @-1h or @-7d", EXIT_USAGE)
    return age_ms
