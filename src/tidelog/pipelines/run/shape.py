"""What of a query's plan its checkpoint holds fast, as text that is the same at every analysis.

Spark reads the state of a query by position: an aggregate whose functions change places, or whose
key is another column of the same type, finds the old bytes and takes them for its own. So the text
has what is kept with its order, its arguments and its keys, and none of the ids that Spark deals
out anew each time.

The optimizer drops what nobody reads, and with it a part of the state: what is left of a plan then
is a second text beside that of the plan as it was written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, Final

from pyspark.sql import DataFrame

from tidelog.spark.jvm import analysed_plan, elements, optimized_plan, pretty_sql

# No name in a file can have a colon, so no alias in SQL is taken for a source by chance.
SOURCE_PREFIX: Final = "tidelog-source:"
_KEYED: Final = ("Deduplicate", "DeduplicateWithinWatermark")
_GROUPED: Final = ("FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState")
_OTHERS: Final = ("Distinct", "TransformWithState", "TransformWithStateInPySpark", "GlobalLimit")
# The arithmetic that a window of fixed length becomes, which says no more than its numbers.
_WINDOW: Final = re.compile(r"named_struct\(start, .*precisetimestampconversion.* % ", re.DOTALL)
_NUMBER: Final = re.compile(r"\b\d+\b")


def state_of(frame: DataFrame) -> list[str]:
    """What a query keeps between micro-batches, as text that changes when that must change."""
    texts = _Texts(pretty_sql(frame.sparkSession))
    found = list(texts.states(analysed_plan(frame)))
    if found:
        found += texts.kept(optimized_plan(frame))
    return found


def source_order(frame: DataFrame, sources: Collection[str]) -> list[str]:
    """The sources of a plan in its order, by which a checkpoint tells their offsets apart.

    A source that is read twice stands here twice, as it does in Spark's offsets.
    """
    found: list[str] = []

    def visit(node: Any) -> None:
        name = _source_of(node)
        if name in sources:
            found.append(name)
            return
        for child in elements(node.children()):
            visit(child)

    visit(analysed_plan(frame))
    return found


def _source_of(node: Any) -> str:
    """The source that a node of a plan is; empty where it is none."""
    if node.nodeName() != "SubqueryAlias":
        return ""
    name = str(node.identifier().name())
    return name.removeprefix(SOURCE_PREFIX) if name.startswith(SOURCE_PREFIX) else ""


class _Texts:
    """Plans and expressions in words."""

    def __init__(self, pretty_sql: Any) -> None:
        self._sql = pretty_sql
        # The functions of the plan as it was written, by the id of their result.
        self._written: dict[int, str] = {}

    def states(self, node: Any) -> Iterator[str]:
        """What the parts of a plan keep, from its end to its sources."""
        if not node.isStreaming() or _source_of(node):
            return
        name = node.nodeName()
        if name == "Aggregate":
            keys = self._keys(node, node.groupingExpressions())
            yield f"Aggregate by ({keys}) of ({self._functions(node)})"
        elif name == "Join" and _joins_streams(node):
            sides = " and ".join(f"({_columns(side)})" for side in (node.left(), node.right()))
            yield f"Join {node.joinType().sql()} of {sides} on {self._condition(node)}"
        elif name in _KEYED:
            yield f"{name} by ({self._keys(node, node.keys())})"
        elif name in _GROUPED:
            keys = self._keys(node, node.groupingAttributes())
            yield f"{name} by ({keys}) of ({_columns(node)})"
        elif name in _OTHERS:
            yield f"{name} of ({_columns(node)})"
        for child in elements(node.children()):
            yield from self.states(child)

    def kept(self, node: Any) -> Iterator[str]:
        """What is left of the aggregates and joins in an optimized plan."""
        if not node.isStreaming():
            return
        if node.nodeName() == "Aggregate":
            yield f"kept of each group: ({self._functions(node)})"
        elif node.nodeName() == "Join" and _joins_streams(node):
            sides = " and ".join(f"({_columns(side)})" for side in (node.left(), node.right()))
            yield f"kept of both sides: {sides}"
        for child in elements(node.children()):
            yield from self.kept(child)

    def _text(self, expression: Any, node: Any = None) -> str:
        """An expression of a node: its columns without qualifiers, where the node needs none."""
        if node is not None and _is_ambiguous(expression, node):
            return str(expression.sql())
        return str(self._sql(expression, False))

    def _condition(self, join: Any) -> str:
        condition = join.condition()
        return self._text(condition.get(), join) if condition.isDefined() else "nothing"

    def _functions(self, aggregate: Any) -> str:
        """The functions of an aggregate in the order in which their values are kept.

        Those of an optimized plan as they were written: the optimizer puts the time of day in the
        place of `current_timestamp()`.
        """
        found = []
        for column in elements(aggregate.aggregateExpressions()):
            for each in _functions(column):
                number = each.resultId().id()
                if number not in self._written:
                    text = f"{self._text(each, aggregate)}: {each.dataType().simpleString()}"
                    self._written[number] = text
                found.append(self._written[number])
        return ", ".join(found)

    def _keys(self, node: Any, keys: Any) -> str:
        """Keys with their types and what they stand for, as far back as the sources."""
        made: dict[int, list[Any]] = {}
        for child in elements(node.children()):
            _note_made(child, made)
        return ", ".join(
            f"{self._with_origin(each, made, node)}: {each.dataType().simpleString()}"
            for each in elements(keys)
        )

    def _with_origin(self, expression: Any, made: dict[int, list[Any]], node: Any = None) -> str:
        text = self._text(expression, node)
        attributes = list(elements(expression.references().toSeq()))
        if _WINDOW.search(text):
            numbers = ", ".join(dict.fromkeys(_NUMBER.findall(text)))
            text = f"{', '.join(each.name() for each in attributes)} in windows by {numbers}"
        origins: dict[str, None] = {}
        for attribute in attributes:
            number = attribute.exprId().id()
            others = {key: value for key, value in made.items() if key != number}
            for each in made.get(number, ()):
                origins[self._with_origin(each, others)] = None
        origins.pop(text, None)
        return f"{text} = {' | '.join(origins)}" if origins else text


def _note_made(node: Any, made: dict[int, list[Any]]) -> None:
    """Note what the columns of a plan are made of, by their ids; a source's own are its matter."""
    if _source_of(node):
        return
    name = node.nodeName()
    if name in ("Project", "Aggregate"):
        columns = node.projectList() if name == "Project" else node.aggregateExpressions()
        for each in elements(columns):
            if each.nodeName() == "Alias":
                made.setdefault(each.exprId().id(), []).append(each.child())
    elif name == "Expand":
        for row in elements(node.projections()):
            for column, each in zip(elements(node.output()), elements(row), strict=True):
                if each.children().size():
                    made.setdefault(column.exprId().id(), []).append(each)
    for child in elements(node.children()):
        _note_made(child, made)


def _functions(expression: Any) -> Iterator[Any]:
    """The aggregate functions in an expression."""
    if expression.nodeName() == "AggregateExpression":
        yield expression
        return
    for child in elements(expression.children()):
        yield from _functions(child)


def _is_ambiguous(expression: Any, node: Any) -> bool:
    """Whether a column of an expression has the name of another that a node is given."""
    given = Counter(
        column.name().lower()
        for child in elements(node.children())
        for column in elements(child.output())
    )
    return any(given[each.name().lower()] > 1 for each in elements(expression.references().toSeq()))


def _joins_streams(join: Any) -> bool:
    return bool(join.left().isStreaming() and join.right().isStreaming())


def _columns(node: Any) -> str:
    fields = node.schema().fields()
    return ", ".join(f"{field.name()}: {field.dataType().simpleString()}" for field in fields)
