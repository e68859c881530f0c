"""docs/security-tests.md names tests that exist, for every target, and every test named for one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| (X\d+) \| .* \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"^\s*(?:async )?def test_(x\d+)_", re.MULTILINE)
TARGETS = [f"X{number}" for number in range(1, 37)]
# There is nothing yet that could be tried.
WITHOUT = {"X16"}


def test_every_target_names_its_tests_and_they_exist() -> None:
    rows = dict(ROW.findall((ROOT / "docs" / "security-tests.md").read_text()))
    assert list(rows) == TARGETS
    for target, cell in rows.items():
        paths = re.findall(r"`(tests/[^`]+)`", cell)
        assert bool(paths) == (target not in WITHOUT), target
        for path in paths:
            assert (ROOT / path).is_file(), f"{target}: {path}"


def test_a_test_that_is_named_for_a_target_is_in_one_of_its_files() -> None:
    rows = dict(ROW.findall((ROOT / "docs" / "security-tests.md").read_text()))
    missing = [
        f"{name.upper()}: {path.relative_to(ROOT)}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in sorted(set(NAMED.findall(path.read_text())))
        if str(path.relative_to(ROOT)) not in rows[name.upper()]
    ]
    assert missing == [], missing
