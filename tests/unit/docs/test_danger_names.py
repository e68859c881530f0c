"""The names of dangers in tests and the catalogue in docs/reliability.md are the same."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| ([A-Z]\d+) \| ", re.MULTILINE)
NAMED_TEST = re.compile(r"^(?:async )?def test_([cginprst]\d+)_", re.MULTILINE)
NAMES_MIN = 50


def test_every_danger_that_a_test_names_is_in_the_catalogue_and_has_a_test() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    catalogue = set(ROW.findall(page))
    named = {
        name.upper()
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in NAMED_TEST.findall(path.read_text())
    }
    assert named - catalogue == set(), "named by a test, missing in docs/reliability.md"
    # The tables of the checker's rules (K, I23) and of pipelines (P) name their tests themselves.
    untested = {name for name in catalogue - named if name[0] not in "KP" and name != "I23"}
    assert untested == set(), "in docs/reliability.md, named by no test"
    assert len(named) >= NAMES_MIN
