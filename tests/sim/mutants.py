"""The product with one rule taken out, to show that somebody notices.

Each mutant patches functions of the product for the length of a run, in the tests and nowhere else.
Where a second defence hides the loss of the first, a mutant takes out both and is called a pair.

    python -m tests.sim.mutants [--seeds 200] [--only NAME]

searches for each mutant the first seed that fails and prints the table. `mutants.toml` keeps one
failing seed for each; the tests run those again. What no simulated world shows is left to a test of
the part that has the rule: the mutant names it, and it must fail.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tests.sim.mutant import Mutant
from tests.sim.mutant_groups import GROUPS
from tests.sim.mutant_rules import RULES
from tests.sim.mutant_tests import run_tests
from tests.sim.mutant_traps import TRAPS
from tests.sim.mutant_units import UNITS
from tests.sim.run import Outcome, run_seed
from tests.sim.stage import NotPlayedError
from tests.sim.transaction_mutants import TRANSACTION_MUTANTS

SAVED: Final = Path(__file__).parent / "mutants.toml"
# A script that did not come to its point has shown nothing.
_ERROR: Final = "E "
_NOT_PLAYED: Final = f"{_ERROR}{NotPlayedError.__name__}"
MUTANTS: Final = (*RULES, *TRAPS, *GROUPS, *UNITS, *TRANSACTION_MUTANTS)


def saved_seeds() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in tomllib.loads(SAVED.read_text()).get("mutant", [])}


def search(mutant: Mutant, first: int, seeds: int) -> Outcome | None:
    """The first seed from `first` on that fails, and does not without the mutant; None where none
    of so many does."""
    for seed in range(first, first + seeds):
        outcome = mutant.run(seed)
        is_found = outcome.failed and outcome.invariant != _NOT_PLAYED
        is_found = is_found and outcome.invariant.startswith(_ERROR) == mutant.by_error
        if is_found and not run_seed(seed, mutant.plan).failed:
            return outcome
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many to try for each")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first of them")
    parser.add_argument("--only", default="", help="mutants whose name has this in it")
    options = parser.parse_args(arguments)
    chosen = [each for each in MUTANTS if options.only in each.name]
    missed = 0
    _write_line("mutant", "rule", "found out by", "what fired", "seeds")
    for mutant in chosen:
        if mutant.test:
            continue
        found = search(mutant, options.first, options.seeds)
        missed += found is None
        if found is None:
            fired, needed = "NOTHING", f">{options.seeds}"
        else:
            fired, needed = found.invariant, str(found.seed - options.first + 1)
        _write_line(mutant.name, mutant.rule, mutant.how, fired, needed)
    return int(bool(missed + _try_tests([each for each in chosen if each.test])))


def _try_tests(mutants: Iterable[Mutant]) -> int:
    """How many mutants the tests that they name do not find."""
    mutants = tuple(mutants)
    found = run_tests([each.name for each in mutants])
    for mutant in mutants:
        fired = "the test" if found[mutant.name] else "NOTHING"
        _write_line(mutant.name, mutant.rule, mutant.test.rpartition("/")[2], fired, "-")
    return sum(not found[each.name] for each in mutants)


def _write_line(*columns: str) -> None:
    widths = (36, 36, 34, 28, 5)
    cells = [cell.ljust(width) for cell, width in zip(columns, widths, strict=True)]
    sys.stdout.write(" ".join(cells).rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
