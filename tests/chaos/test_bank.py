"""Money under kills: the short run of every change, and the long one."""

from __future__ import annotations

import pytest

from tests.chaos.bank import run


def test_k16_transfers_conserve_the_sum_whoever_is_killed() -> None:
    transfers, snapshots = run(transfers=200, kills=2)
    assert transfers >= 200
    # Two brokers while one is away, all three when it is back, and all in the end.
    assert snapshots == 2 * (2 + 3) + 3


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
def test_k16_many_transfers_conserve_the_sum_whoever_is_killed(seed: int) -> None:
    transfers, snapshots = run(transfers=20_000, kills=30, seed=seed)
    assert transfers >= 20_000 and snapshots == 30 * 5 + 3
