"""A pipeline as DataFrames: sources read, steps made in order, each target's relation at hand.

Where records come from is given as a function from a source to its records, so that a stream, a
batch and a test's files go the same way. Each target is built in a session of its own, so that the
names of one do not meet those of another.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog.config.table import hint
from tidelog.spark.pipeline.check import Checked, upstream
from tidelog.spark.pipeline.explain import explain, explain_at
from tidelog.spark.pipeline.model import (
    Pipeline,
    PipelineError,
    PythonFunction,
    Source,
    Step,
    TableSink,
    Target,
)
from tidelog.spark.pipeline.shape import SOURCE_PREFIX
from tidelog.spark.pipeline.values import (
    needed_columns,
    read_dead_letters,
    read_rows,
    write_records,
)

if TYPE_CHECKING:
    from pyspark.sql import Observation

# A session, a source, and the columns of its records that are needed.
Records = Callable[[SparkSession, Source, list[str]], DataFrame]
# PySpark writes every error that it raises to the terminal too, as a page of JSON.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)


@dataclass(slots=True)
class Plan:
    """Builds what the targets of a pipeline need; `observations` are those of a batch."""

    session: SparkSession
    pipeline: Pipeline
    checked: Checked
    records: Records
    observations: dict[str, Observation] = field(default_factory=dict)

    def target(self, target: Target) -> DataFrame:
        """What is written: rows for a table, records for a topic."""
        rows = self.relation(target.relation)
        if isinstance(target.sink, TableSink):
            _check_partitions(rows, target.sink, target)
            return rows
        return write_records(rows, target)

    def relation(self, name: str) -> DataFrame:
        """A source's rows or a step's, with all that they are made of."""
        session = self.session.newSession()
        for key, value in self.pipeline.spark.items():
            if session.conf.isModifiable(key):
                session.conf.set(key, value)
        needed = upstream(name, self.checked.inputs)
        frames: dict[str, DataFrame] = {}
        for source in self.pipeline.sources.values():
            if source.name in needed:
                records = self.records(session, source, needed_columns(source))
                rows = read_rows(records, source, self.observations.get(source.name))
                # By the first name `shape` finds the source again in a plan, by the second a step
                # in Python can name its columns.
                rows = rows.alias(SOURCE_PREFIX + source.name).alias(source.name)
                frames[source.name] = rows
                rows.createOrReplaceTempView(source.name)
        for step_name in self.checked.order:
            if step_name in needed:
                frame = _make(session, self.pipeline.steps[step_name], frames)
                frames[step_name] = frame
                frame.createOrReplaceTempView(step_name)
        return frames[name]

    def dead_letters(self, source: Source) -> DataFrame:
        """The bad records of a source."""
        columns = needed_columns(source, dead_letters=True)
        records = self.records(self.session.newSession(), source, columns)
        seen = self.observations.get(source.name)
        return read_dead_letters(records, source, self.pipeline.name, seen)


def _make(session: SparkSession, step: Step, frames: dict[str, DataFrame]) -> DataFrame:
    if step.sql is not None:
        try:
            return session.sql(step.sql.text)
        except AnalysisException as error:
            raise PipelineError([explain(error, step.sql)]) from None
    assert step.python is not None
    function = load_function(step.python, step)
    try:
        frame = function(*(frames[name] for name in step.inputs))
    except PySparkException as error:
        raise PipelineError([explain_at(error, step.mark, f"step {step.name}")]) from error
    except Exception as error:
        what = f"step {step.name}: {step.python.name} raised {type(error).__name__}"
        raise PipelineError([f"{step.mark}: {what}: {error}"]) from error
    if not isinstance(frame, DataFrame):
        what = f"{step.python.name} gave a {type(frame).__name__}, no DataFrame"
        raise PipelineError([f"{step.mark}: step {step.name}: {what}"])
    return frame


def load_function(python: PythonFunction, step: Step) -> Callable[..., Any]:
    """The function that a step names; its file is run once per process."""
    module = _load_module(python, step)
    function = getattr(module, python.name, None)
    if not callable(function):
        names = [name for name in vars(module) if callable(getattr(module, name))]
        near = hint(python.name, names)
        raise PipelineError([f"{step.mark}: {python.path} has no function {python.name}{near}"])
    found: Callable[..., Any] = function
    return found


def _load_module(python: PythonFunction, step: Step) -> ModuleType:
    name = f"tidelog_step_{sha256(str(python.path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, python.path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        line = _line_of(error, str(python.path))
        place = f"{python.path}:{line}" if line else str(step.mark)
        raise PipelineError([f"{place}: {type(error).__name__}: {error}"]) from error
    # The workers cannot import this file, so its functions travel whole.
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _line_of(error: BaseException, path: str) -> int | None:
    """The last line of a file that an error came through."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _check_partitions(rows: DataFrame, sink: TableSink, target: Target) -> None:
    for name in sink.partition_by:
        if name not in rows.columns:
            near = hint(name, rows.columns)
            raise PipelineError(
                [f"{target.mark}: {target.relation} has no column {name} to partition by{near}"]
            )
