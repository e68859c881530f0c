"""Transactions on three real brokers that are killed, with programs that are killed as well."""

from __future__ import annotations

import pytest

from tests.chaos.copying import Wishes, run


@pytest.mark.parametrize("is_group", [True, False], ids=["group", "assigned"])
def test_t14_a_copy_has_every_record_once_whoever_is_killed(is_group: bool) -> None:
    """K14: input equals output, nothing twice, order kept."""
    killed = run(Wishes(3_000, 25, 2, 2, is_group))
    assert (killed["broker"], killed["copier"]) == (2, 2)


@pytest.mark.long
@pytest.mark.parametrize("is_group", [True, False], ids=["group", "assigned"])
@pytest.mark.parametrize("seed", range(1, 7))
def test_t14_a_long_copy_has_every_record_once_whoever_is_killed(seed: int, is_group: bool) -> None:
    killed = run(Wishes(100_000, 750, 30, 30, is_group, seed))
    assert (killed["broker"], killed["copier"]) == (30, 30)
