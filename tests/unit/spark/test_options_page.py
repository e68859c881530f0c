"""The page of options is the one that the tables make."""

from __future__ import annotations

from pathlib import Path

from tidelog.spark.options_page import page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark-options.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run python -m tidelog.spark.options_page --write docs/…"
