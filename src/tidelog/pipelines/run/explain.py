"""What Spark says about SQL, with the file and line where the SQL was written."""

from __future__ import annotations

import re
from typing import Any, Final

from tidelog.config.yaml_tree import Mark, Scalar

# "; line 2 pos 4" of the analyser and "(line 2, pos 4)" of the parser; positions count from zero.
_PLACE: Final = re.compile(r"line (\d+),? pos (\d+)")
_NOISE: Final = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_CONDITION: Final = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")


def explain(error: Any, sql: Scalar) -> str:
    """One line for an error of the parser or the analyser, with its place in the file."""
    found = _PLACE.search(str(error))
    mark = sql.mark
    if found is not None:
        mark = sql.locate(int(found[1]), int(found[2]) + 1)
    return f"{mark}: {sentence(error)}"


def explain_at(error: Any, mark: Mark, what: str) -> str:
    """One line for an error that has no place of its own."""
    return f"{mark}: {what}: {sentence(error)}"


def sentence(error: Any) -> str:
    """What went wrong, without Spark's codes, its plan and its stack."""
    text = _NOISE.sub("", _CONDITION.sub("", str(error)))
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
