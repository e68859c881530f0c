"""Places in a log as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidelog.cli.faults import CliError
from tidelog.cli.positions import parse_start
from tidelog.client.offsets import Start

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("start", Start("start")),
        ("beginning", Start("start")),
        ("Earliest", Start("start")),
        ("end", Start("end")),
        ("latest", Start("end")),
        ("0", Start("offset", 0)),
        ("1234", Start("offset", 1234)),
        ("-10", Start("tail", 10)),
        ("@1700000000000", Start("time", 1_700_000_000_000)),
        ("@-1h", Start("time", NOW_MS - 3_600_000)),
        ("@-90s", Start("time", NOW_MS - 90_000)),
        ("@-250ms", Start("time", NOW_MS - 250)),
        ("@-7d", Start("time", NOW_MS - 7 * 86_400_000)),
        (
            "@2026-11-15T12:30:00Z",
            Start("time", int(datetime(2026, 11, 15, 12, 30, tzinfo=UTC).timestamp() * 1000)),
        ),
        ("@2026-11-15", Start("time", int(datetime(2026, 11, 15).timestamp() * 1000))),
    ],
)
def test_places(text: str, start: Start) -> None:
    assert parse_start(text, NOW_MS) == start


@pytest.mark.parametrize("text", ["", "middle", "1.5", "--3", "@", "@soon", "@-1y", "@-h"])
def test_what_is_no_place_is_an_error_with_a_hint(text: str) -> None:
    with pytest.raises(CliError) as caught:
        parse_start(text, NOW_MS)
    assert caught.value.status == 2
    assert "@-" in caught.value.hint
