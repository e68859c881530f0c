"""A pipeline as DataFrames: sources read, steps made in order, each target's relation at hand.

Where records come from is given as a function from a source to its records, so that a stream, a
batch and a test's files go the same way. Each target is built in a session of its own, so that the
names of one do not meet those of another.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog.config.table import hint
from tidelog.config.yaml_tree import Mark, Scalar
from tidelog.pipelines.declare.check import Checked, upstream
from tidelog.pipelines.declare.pipeline import (
    Pipeline,
    PipelineError,
    PythonFunction,
    Source,
    Step,
    TableSink,
    Target,
)
from tidelog.pipelines.run.explain import explain, explain_at, sentence
from tidelog.pipelines.run.rows import (
    needed_columns,
    read_dead_letters,
    read_rows,
    write_records,
)
from tidelog.pipelines.run.shape import SOURCE_PREFIX
from tidelog.spark.jvm import elements, logical_class, parsed_plan
from tidelog.spark.option_values import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Observation

_COMMANDS: Final = ("Command", "ParsedStatement")
# Those that Spark's classes do not call commands.
_EFFECTS: Final = ("InsertIntoDir", "Call")
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
        _check_once(rows, target)
        if isinstance(target.sink, TableSink):
            _check_partitions(rows, target.sink, target)
            return rows
        with _told(target.mark, f"target {target.name}"):
            return write_records(rows, target)

    def relation(self, name: str) -> DataFrame:
        """A source's rows or a step's, with all that they are made of."""
        session = self.session.newSession()
        _configure(session, self.pipeline)
        needed = upstream(name, self.checked.inputs)
        frames: dict[str, DataFrame] = {}
        for source in self.pipeline.sources.values():
            if source.name in needed:
                frames[source.name] = self._source(session, source)
        for step_name in self.checked.order:
            if step_name in needed:
                step = self.pipeline.steps[step_name]
                frame = _make(session, step, frames)
                frames[step_name] = frame
                with _told(step.mark, f"step {step_name}"):
                    frame.createOrReplaceTempView(step_name)
        return frames[name]

    def _source(self, session: SparkSession, source: Source) -> DataFrame:
        with _told(source.mark, f"source {source.name}"):
            records = self.records(session, source, needed_columns(source))
            rows = read_rows(records, source, self.observations.get(source.name))
            # By the first name `shape` finds the source again in a plan, by the second a step in
            # Python can name its columns.
            rows = rows.alias(SOURCE_PREFIX + source.name).alias(source.name)
            rows.createOrReplaceTempView(source.name)
            return rows

    def dead_letters(self, source: Source) -> DataFrame:
        """The bad records of a source."""
        columns = needed_columns(source, dead_letters=True)
        seen = self.observations.get(source.name)
        with _told(source.mark, f"source {source.name}"):
            records = self.records(self.session.newSession(), source, columns)
            return read_dead_letters(records, source, self.pipeline.name, seen)


@contextmanager
def _told(mark: Mark, what: str) -> Iterator[None]:
    """What Spark or the data source refuses, with the place of the part that it is about."""
    try:
        yield
    except (PySparkException, OptionError) as error:
        raise PipelineError(explain_at(error, mark, what)) from None


def _configure(session: SparkSession, pipeline: Pipeline) -> None:
    for key, value in pipeline.spark.items():
        try:
            if session.conf.isModifiable(key):
                session.conf.set(key, value)
        except PySparkException as error:
            problem = f"{pipeline.path}: spark: {key}: {sentence(error)}"
            raise PipelineError(problem) from None


def _make(session: SparkSession, step: Step, frames: dict[str, DataFrame]) -> DataFrame:
    if step.sql is not None:
        try:
            _refuse_command(session, step.sql, step)
            return session.sql(step.sql.text)
        except PySparkException as error:
            raise PipelineError(explain(error, step.sql)) from None
    assert step.python is not None
    function = load_function(step.python, step)
    try:
        frame = function(*(frames[name] for name in step.inputs))
    except PySparkException as error:
        raise PipelineError(explain_at(error, step.mark, f"step {step.name}")) from error
    except Exception as error:
        what = f"step {step.name}: {step.python.name} raised {type(error).__name__}"
        raise PipelineError(f"{step.mark}: {what}: {error}") from error
    if not isinstance(frame, DataFrame):
        what = f"{step.python.name} gave a {type(frame).__name__}, no DataFrame"
        raise PipelineError(f"{step.mark}: step {step.name}: {what}")
    return frame


def _refuse_command(session: SparkSession, sql: Scalar, step: Step) -> None:
    """Spark carries a command out as soon as it is given one, and a check must change nothing."""
    kinds = [logical_class(session, name) for name in _COMMANDS]
    waiting = [parsed_plan(session, sql.text)]
    while waiting:
        node = waiting.pop()
        if node.nodeName() in _EFFECTS or any(kind.isInstance(node) for kind in kinds):
            what = f"step {step.name} is a command ({node.nodeName()}); a step is a query"
            raise PipelineError(f"{sql.mark}: {what}, such as SELECT")
        waiting += elements(node.children())


def load_function(python: PythonFunction, step: Step) -> Callable[..., Any]:
    """The function that a step names; its file is run once per process."""
    module = _load_module(python, step)
    function = getattr(module, python.name, None)
    if not callable(function):
        names = [name for name in vars(module) if callable(getattr(module, name))]
        near = hint(python.name, names)
        raise PipelineError(f"{step.mark}: {python.path} has no function {python.name}{near}")
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
        raise PipelineError(f"{place}: {type(error).__name__}: {error}") from error
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


def _check_once(rows: DataFrame, target: Target) -> None:
    seen: set[str] = set()
    for name in rows.columns:
        if name.lower() in seen:
            what = f"{target.relation} has the column {name} twice, so {target.name} cannot tell"
            raise PipelineError(f"{target.mark}: {what} which is meant; name each column once")
        seen.add(name.lower())


def _check_partitions(rows: DataFrame, sink: TableSink, target: Target) -> None:
    for name in sink.partition_by:
        if name not in rows.columns:
            near = hint(name, rows.columns)
            raise PipelineError(
                f"{target.mark}: {target.relation} has no column {name} to partition by{near}"
            )
