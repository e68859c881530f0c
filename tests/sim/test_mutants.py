"""The product without one of its rules is found out, by a seed that is known to do it."""

from __future__ import annotations

import pytest

from tests.sim.mutants import MUTANTS, Mutant, saved_seeds, search

KNOWN = saved_seeds()
# A change of the product moves what a seed does: so many more may be tried.
MORE_SEEDS = 6


@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each.name in KNOWN], ids=lambda each: each.name
)
def test_a_mutant_is_found_out(mutant: Mutant) -> None:
    found = search(mutant, KNOWN[mutant.name]["seed"], 1 + MORE_SEEDS)
    assert found is not None, f"{mutant.rule}: no seed failed; search for another one"
