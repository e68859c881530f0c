"""Runs the tests that mutants name, each without the rule it is about: all in one process.

`run_tests` starts that process: pytest does not run inside pytest. What it tells is which of the
mutants their tests have found out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_OPTIONS: Final = (
    "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=line",
    # The product is imported already: that is the point.
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip


def run_tests(names: Sequence[str]) -> dict[str, bool]:
    """By mutant, whether its test fails."""
    if not names:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        told = os.path.join(directory, "found.json")
        command = [sys.executable, "-m", "tests.sim.mutant_tests", told, *names]
        # The outcome of a test that fails is no failure here; what was told is.
        ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
        if not os.path.exists(told):
            raise RuntimeError(f"{ended.stdout}\n{ended.stderr}")
        with open(told) as file:
            found: dict[str, bool] = json.load(file)
    return found


def main() -> None:
    import pytest

    from tests.sim.mutants import MUTANTS

    told, names = sys.argv[1], set(sys.argv[2:])
    chosen = [each for each in MUTANTS if each.name in names]
    # With every rule in place they pass; it also imports them as they are.
    code = pytest.main([*dict.fromkeys(each.test for each in chosen), *_OPTIONS])
    assert code == pytest.ExitCode.OK, "a test fails without any mutant"
    found = {}
    for mutant in chosen:
        with mutant.applied():
            code = pytest.main([mutant.test, *_OPTIONS])
        # Anything else than a failed test says that the mutant or its test is a mistake.
        found[mutant.name] = code == pytest.ExitCode.TESTS_FAILED
    with open(told, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
