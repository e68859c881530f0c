"""Spans of time as people write them."""

import pytest

from tidelog.durations import parse_duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("15m", 900_000),
        ("15 min", 900_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1 minute", 60_000),
        ("3 days", 259_200_000),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "s", "1.5h", "-1s", "1 5m", "5 parsecs", "5S"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert parse_duration_ms(text) is None
