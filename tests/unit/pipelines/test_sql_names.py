"""The relations that a statement reads are found without Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.pipelines.statements import GUESSED, STATEMENTS
from tidelog.pipelines.declare.sql_names import Reference, References, references


@pytest.mark.parametrize(("sql", "names"), STATEMENTS)
def test_the_relations_of_a_statement_are_found(sql: str, names: list[str]) -> None:
    answer = references(sql)
    assert ([each.name for each in answer.found], answer.certain) == (names, True)


@pytest.mark.parametrize(("sql", "names"), GUESSED)
def test_what_sqlglot_does_not_parse_is_guessed(sql: str, names: list[str]) -> None:
    answer = references(sql)
    assert ([each.name for each in answer.found], answer.certain) == (names, False)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t SELECT * FROM a",
        "MERGE INTO t USING a ON x WHEN MATCHED THEN DELETE",
        "CREATE TEMPORARY VIEW v AS SELECT * FROM a",
        "SHOW TABLES",
        "SELEC * FROM a",
        "SELECT '",
        "(" * 3_000,
    ],
)
def test_what_is_no_query_is_left_to_spark(sql: str) -> None:
    assert not references(sql).certain


def test_a_reference_knows_its_line_and_column() -> None:
    assert references("SELECT *\n  FROM clicks") == References([Reference("clicks", 2, 8)], True)
    assert references("SELECT * FROM `we``ird`").found == [Reference("we`ird", 1, 15)]


def test_sqlglot_is_loaded_with_the_first_statement() -> None:
    ask = "import sys, tidelog.pipelines.declare.check; sys.exit('sqlglot' in sys.modules)"
    subprocess.run([sys.executable, "-c", ask], check=True)
