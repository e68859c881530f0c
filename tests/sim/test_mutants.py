"""The product without one of its rules is found out: by a seed that is known to, or by a test."""

from __future__ import annotations

from functools import cache

import pytest

from tests.sim.mutant import Mutant
from tests.sim.mutant_tests import run_tests
from tests.sim.mutants import MUTANTS, main, saved_seeds, search
from tests.sim.run import Plan, run_seed
from tests.sim.scenarios import SCENARIOS

KNOWN = saved_seeds()
# A change of the product moves what a seed does: so many more may be tried.
MORE_SEEDS = 6
SIMULATED = [each for each in MUTANTS if not each.test]
TESTED = [each for each in MUTANTS if each.test]


@pytest.mark.parametrize("mutant", SIMULATED, ids=lambda each: each.name)
def test_a_mutant_is_found_out(mutant: Mutant) -> None:
    found = search(mutant, KNOWN[mutant.name]["seed"], 1 + MORE_SEEDS)
    assert found is not None, f"{mutant.rule}: no seed failed; search for another one"
    print(f"{mutant.name:36} {mutant.rule:36} {found.invariant:28} seed {found.seed}")


@cache
def found_by_tests() -> dict[str, bool]:
    return run_tests([each.name for each in TESTED])


@pytest.mark.parametrize("mutant", TESTED, ids=lambda each: each.name)
def test_a_mutant_is_found_out_by_its_test(mutant: Mutant) -> None:
    assert found_by_tests()[mutant.name], f"{mutant.rule}: {mutant.test} does not fail"


@pytest.mark.parametrize("script", SCENARIOS)
def test_a_script_is_clean_with_every_rule_in_place(script: str) -> None:
    for seed in (101, 102):
        outcome = run_seed(seed, Plan(3, script=script))
        assert not outcome.failed, str(outcome)


@pytest.mark.long
def test_a_search_finds_every_mutant() -> None:
    """Prints the table: each mutant, what fired, and how many seeds that took."""
    assert main(["--seeds", "200"]) == 0


def test_mutants_have_names_of_their_own_and_none_is_kept_that_is_gone() -> None:
    names = [each.name for each in MUTANTS]
    assert len(set(names)) == len(names)
    assert KNOWN.keys() == {each.name for each in SIMULATED}
