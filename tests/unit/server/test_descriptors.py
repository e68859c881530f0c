"""How descriptors are shared out."""

from __future__ import annotations

import pytest

from tidelog.server.descriptors import share_out


@pytest.mark.parametrize("limit", [256, 1024, 4096, 65_536, 1 << 20])
def test_the_shares_leave_room_for_everything_else(limit: int) -> None:
    shares = share_out(limit, -1)
    assert shares.open_files == limit // 2
    assert shares.clients >= 16
    assert shares.open_files + shares.clients + shares.pages + 64 <= limit


def test_a_configured_number_of_open_files_is_taken_from_the_clients() -> None:
    assert share_out(10_000, 9_000).open_files == 9_000
    assert share_out(10_000, 9_000).clients == 10_000 - 9_000 - 128 - 64
