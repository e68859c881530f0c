"""The static check and Spark's own parser name the same relations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.pipelines.statements import GUESSED, STATEMENTS
from tidelog.pipelines.declare.sql_names import references
from tidelog.spark.jvm import elements, parsed_plan


@pytest.mark.parametrize("sql", [sql for sql, _ in (*STATEMENTS, *GUESSED)])
def test_spark_reads_the_same_relations(spark: Any, sql: str) -> None:
    catalyst = spark._jvm.org.apache.spark.sql.catalyst
    plan = catalyst.analysis.CTESubstitution.apply(parsed_plan(spark, sql))
    assert set(unresolved(spark, plan)) == {each.name for each in references(sql).found}


def unresolved(spark: Any, node: Any) -> Iterator[str]:
    """The names of one part in a plan, or in the plans that an expression holds."""
    if node.nodeName() == "UnresolvedRelation":
        parts = list(elements(node.multipartIdentifier()))
        if len(parts) == 1:
            yield parts[0]
    below = list(elements(node.children()))
    if is_a(spark, node, "plans.QueryPlan"):
        below += elements(node.expressions())
    elif is_a(spark, node, "expressions.PlanExpression"):
        below.append(node.plan())
    for each in below:
        yield from unresolved(spark, each)


def is_a(spark: Any, node: Any, name: str) -> bool:
    kind = spark._jvm.java.lang.Class.forName(f"org.apache.spark.sql.catalyst.{name}")
    return bool(kind.isInstance(node))
