"""What Spark says of a pipeline before a row is read: SQL, columns, and what a stream can do.

The targets are built over empty streams with the declared schemas. Whether a query can run as a
stream in its output mode is asked of Spark itself; what it refuses is told with the target's line
and a remedy.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog.pipelines.declare.check import Checked
from tidelog.pipelines.declare.pipeline import (
    Emit,
    Pipeline,
    PipelineError,
    Source,
    Target,
    TopicSink,
)
from tidelog.pipelines.run.explain import explain_at, sentence
from tidelog.pipelines.run.option_check import check_options
from tidelog.pipelines.run.plan import Plan
from tidelog.pipelines.run.rows import record_schema
from tidelog.pipelines.run.shape import state_of
from tidelog.spark.jvm import check_streaming


@dataclass(slots=True)
class Analysed:
    """One target as Spark understands it."""

    target: Target
    columns: list[tuple[str, str]]
    mode: str
    state: list[str]


def analyse(session: SparkSession, pipeline: Pipeline, checked: Checked) -> list[Analysed]:
    """Every target, built over empty streams; PipelineError names all that cannot work."""
    problems: list[str] = []
    found = []
    try:
        check_options(pipeline)
    except PipelineError as error:
        problems += error.problems
    with tempfile.TemporaryDirectory() as directory:
        plan = Plan(session, pipeline, checked, _empty_streams(directory))
        for target in pipeline.targets.values():
            try:
                found.append(_analyse(plan, target))
            except PipelineError as error:
                problems += error.problems
            except PySparkException as error:
                problems.append(explain_at(error, target.mark, f"target {target.name}"))
        for source in pipeline.with_dead_letters():
            try:
                plan.dead_letters(source)
            except PipelineError as error:
                problems += error.problems
    if problems:
        raise PipelineError(*dict.fromkeys(problems))
    return found


def _empty_streams(directory: str) -> Any:
    def records(session: SparkSession, source: Source, columns: list[str]) -> DataFrame:
        return session.readStream.schema(record_schema(columns)).parquet(directory)

    return records


def _analyse(plan: Plan, target: Target) -> Analysed:
    frame = plan.target(target)
    state = state_of(frame)
    mode = output_mode(target, state)
    check_stream(frame, target, mode)
    columns = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
    return Analysed(target, columns, mode, state)


def output_mode(target: Target, state: list[str]) -> str:
    """The mode in which a target is written; an aggregate must say which."""
    aggregates = any(line.startswith("Aggregate") for line in state)
    if aggregates and target.emit is None and isinstance(target.sink, TopicSink):
        raise PipelineError(
            f"{target.mark}: target {target.name} is an aggregate: say emit: updates (each"
            " change) or emit: final (once, when the watermark has passed)"
        )
    return "update" if target.emit is Emit.UPDATES else "append"


def check_stream(frame: DataFrame, target: Target, mode: str) -> None:
    """PipelineError where Spark cannot run what a target writes as a stream in this mode."""
    try:
        check_streaming(frame, mode)
    except AnalysisException as error:
        text = sentence(error)
        if "watermark" in text.lower():
            remedy = "; give the source a watermark and group by a window of its column"
            if isinstance(target.sink, TopicSink) and mode == "append":
                remedy += ", or say emit: updates"
            text += remedy
        raise PipelineError(f"{target.mark}: target {target.name}: {text}") from None
