"""Spans of time as people write them: 250ms, 30s, 15m, 1h, 7d, 2w, 1 minute, 3 days."""

from __future__ import annotations

UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
for _word in ("second", "minute", "hour", "day", "week"):
    UNITS_MS[_word] = UNITS_MS[f"{_word}s"] = UNITS_MS[_word[0]]


def parse_duration_ms(text: str) -> int | None:
    """The milliseconds that `text` stands for; None where it is no duration."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :]
    number = number.rstrip()
    if unit not in UNITS_MS or not number.isdecimal():
        return None
    return int(number) * UNITS_MS[unit]
