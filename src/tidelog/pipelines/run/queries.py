"""The queries of a pipeline: one for each target, one for the dead letters of each source.

A stream's query has a checkpoint of its own. Rows that are only added go through Spark's sinks;
updates go through `foreachBatch` and the batch writer, because Spark gives Python's sinks no update
mode. A batch reads from the sources' start to where the logs ended when the run began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tidelog.config.table import hint
from tidelog.pipelines.declare.check import BAD_SUFFIX, Checked
from tidelog.pipelines.declare.connector import Ends, batch_options, stream_options, write_options
from tidelog.pipelines.declare.pipeline import (
    Mode,
    Pipeline,
    PipelineError,
    Source,
    TableSink,
    Target,
    TopicSink,
)
from tidelog.pipelines.run.analysis import check_stream, output_mode
from tidelog.pipelines.run.checkpoint import ONCE_SINK, TOPIC_SINK, Fingerprint, SourceShape
from tidelog.pipelines.run.places import batch_place
from tidelog.pipelines.run.plan import Plan, Records
from tidelog.pipelines.run.rows import record_schema
from tidelog.pipelines.run.shape import source_order, state_of
from tidelog.spark.jvm import activate
from tidelog.spark.locations import is_local
from tidelog.spark.table.writers import QUERY_ID_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC_FORMAT: Final = "tidelog"
TABLE_FORMAT: Final = "tidelog_table"


@dataclass(slots=True)
class Query:
    """What one query writes: the rows of a target, or a source's bad records."""

    name: str
    target: Target | None = None
    source: Source | None = None

    @property
    def topic(self) -> str:
        """The topic that is written to; empty for a table."""
        if self.source is not None:
            return self.source.bad_records.topic
        assert self.target is not None
        return self.target.sink.topic if isinstance(self.target.sink, TopicSink) else ""

    @property
    def is_once(self) -> bool:
        """Whether its topic gets every row exactly once."""
        sink = self.target.sink if self.target is not None else None
        return isinstance(sink, TopicSink) and sink.exactly_once

    @property
    def table(self) -> TableSink | None:
        sink = self.target.sink if self.target is not None else None
        return sink if isinstance(sink, TableSink) else None


def pipeline_queries(pipeline: Pipeline, only: Iterable[str] = ()) -> list[Query]:
    """All queries, or those of the targets that are named (and no dead letters)."""
    wanted = list(only)
    dead = [Query(each.name + BAD_SUFFIX, source=each) for each in pipeline.with_dead_letters()]
    queries = [*dead, *(Query(name, target) for name, target in pipeline.targets.items())]
    known = [query.name for query in queries]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise PipelineError(
            f"{pipeline.path}: there is no target {unknown[0]}; there are {', '.join(known)}"
        )
    return [query for query in queries if not wanted or query.name in wanted]


def check_names(option: str, names: Iterable[str], queries: Iterable[Query]) -> None:
    """PipelineError where an option names what this run does not have."""
    known = [query.name for query in queries]
    for name in names:
        if name not in known:
            raise PipelineError(
                f"{option} {name}: there is no such target in this run{hint(name, known)};"
                f" it has {', '.join(known)}"
            )


def group_of(pipeline: Pipeline, query: Query) -> str:
    """The group that a query's offsets are committed to.

    The only query of a pipeline has the pipeline's; several have one each, and the runner commits
    to the pipeline's group how far the slowest is.
    """
    alone = len(pipeline_queries(pipeline)) == 1
    return pipeline.group if alone else f"{pipeline.group}.{query.name}"


def stream_records(pipeline: Pipeline, group: str) -> Records:
    """Sources as streams."""

    def records(session: SparkSession, source: Source, columns: list[str]) -> DataFrame:
        return _load(session.readStream, stream_options(pipeline, source, group), columns)

    return records


def batch_records(pipeline: Pipeline, ends: dict[str, Ends]) -> Records:
    """Sources as they were when a batch began; `ends` by the source's name."""

    def records(session: SparkSession, source: Source, columns: list[str]) -> DataFrame:
        return _load(session.read, batch_options(pipeline, source, ends[source.name]), columns)

    return records


def _load(reader: Any, options: dict[str, str], columns: list[str]) -> DataFrame:
    if "headers" in columns:
        options = {**options, "includeHeaders": "true"}
    frame: DataFrame = (
        reader.format(TOPIC_FORMAT).options(**options).schema(record_schema(columns)).load()
    )
    return frame


@dataclass(slots=True)
class Streams:
    """Starts the streaming queries of one run.

    Of updates, which Spark knows nothing about, it keeps what went wrong and how many were written.
    """

    session: SparkSession
    pipeline: Pipeline
    checked: Checked
    mode: Mode
    errors: dict[str, Exception] = field(default_factory=dict)
    updates: dict[str, int] = field(default_factory=dict)

    def build(self, query: Query) -> DataFrame:
        """What a query writes, as a stream; PipelineError where Spark could not run it as one."""
        records = stream_records(self.pipeline, group_of(self.pipeline, query))
        plan = Plan(self.session, self.pipeline, self.checked, records)
        return build(plan, query)

    def fingerprint(self, query: Query, frame: DataFrame) -> Fingerprint:
        """What of a query its checkpoint holds fast; PipelineError where it cannot be a stream."""
        if query.target is None:
            assert query.source is not None
            return Fingerprint([_shape(query.source)], [], "append", TOPIC_SINK)
        state = state_of(frame)
        mode = output_mode(query.target, state)
        check_stream(frame, query.target, mode)
        order = source_order(frame, self.pipeline.sources)
        table = query.table
        return Fingerprint(
            sources=[_shape(self.pipeline.sources[name]) for name in order],
            state=state,
            mode=mode,
            sink=_sink(query) if table is None else f"{table.format} table",
            table="" if table is None else table.path,
            partition_by=[] if table is None else list(table.partition_by),
        )

    def start(self, query: Query, frame: DataFrame, mode: str, checkpoint: str) -> StreamingQuery:
        """Run a query from its checkpoint on, in the mode of its fingerprint."""
        self.errors.pop(query.name, None)
        writer = frame.writeStream.queryName(f"{self.pipeline.name}.{query.name}")
        writer = writer.option("checkpointLocation", checkpoint)
        if self.mode is Mode.CATCH_UP:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self.pipeline.trigger_ms} milliseconds")
        writer = writer.outputMode(mode)
        if query.table is not None:
            return writer.format(TABLE_FORMAT).options(**table_options(query.table)).start()
        options = topic_options(self.pipeline, query)
        if mode == "update":
            return writer.foreachBatch(self._update_writer(query, options)).start()
        if query.is_once:
            options |= {"exactlyOnce": "true"}
            if not is_local(checkpoint):
                # The sink could not read there which query it is.
                options |= {"txnAppId": f"{self.pipeline.name}.{query.name}"}
        return writer.format(TOPIC_FORMAT).options(**options).start()

    def _update_writer(
        self, query: Query, options: dict[str, str]
    ) -> Callable[[DataFrame, int], None]:
        def write(rows: DataFrame, batch: int) -> None:
            activate(rows.sparkSession)
            count = Observation()
            rows = rows.observe(count, F.count(F.lit(1)).alias("rows"))
            try:
                wanted = {**options, **(version_options(rows, batch) if query.is_once else {})}
                rows.write.format(TOPIC_FORMAT).options(**wanted).mode("append").save()
                written = self.updates.get(query.name, 0) + int(count.get["rows"])
                self.updates[query.name] = written
            except Exception as error:
                # Kept here, and told Spark in a few words: it looks for its own error in the text
                # with a regular expression that overflows the stack on a long one, and the query
                # then ends as if all were well.
                self.errors[query.name] = error
                raise RuntimeError(f"batch {batch} could not be written") from None

        return write


def _sink(query: Query) -> str:
    return ONCE_SINK if query.is_once else TOPIC_SINK


def version_options(rows: DataFrame, batch: int) -> dict[str, str]:
    """By what a micro-batch that comes again is known, of the query whose thread this is."""
    query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    if not query:
        raise PipelineError(f"Spark gave no {QUERY_ID_PROPERTY}: nothing can be written once")
    return {"exactlyOnce": "true", "txnAppId": query, "txnVersion": str(batch)}


def _shape(source: Source) -> SourceShape:
    return SourceShape(sorted(source.topics), source.pattern)


def build(plan: Plan, query: Query) -> DataFrame:
    """The rows of a target or the bad records of a source."""
    if query.target is not None:
        return plan.target(query.target)
    assert query.source is not None
    return plan.dead_letters(query.source)


def topic_options(pipeline: Pipeline, query: Query) -> dict[str, str]:
    sink = query.target.sink if query.target is not None else None
    return write_options(pipeline, query.topic, sink if isinstance(sink, TopicSink) else None)


def table_options(table: TableSink) -> dict[str, str]:
    options = {"path": table.path, "format": table.format}
    if table.partition_by:
        options["partitionBy"] = ",".join(table.partition_by)
    if table.add_columns:
        options["mergeSchema"] = "true"
    return options


def write_batch(frame: DataFrame, query: Query, pipeline: Pipeline, into: str = "") -> None:
    """Write a query's history: into a directory for a look, or to where it belongs.

    `into` gets a directory of Parquet for each query, replaced as a whole. Without it a table is
    replaced in one transaction, and a topic gets every record again.
    """
    writer: Any = frame.write
    if into:
        writer.mode("overwrite").parquet(batch_place(into, query.name))
    elif query.table is not None:
        writer = writer.format(TABLE_FORMAT).options(**table_options(query.table))
        writer.mode("overwrite").save()
    else:
        writer = writer.format(TOPIC_FORMAT).options(**topic_options(pipeline, query))
        writer.mode("append").save()


def sources_of(query: Query, pipeline: Pipeline, checked: Checked) -> Iterator[Source]:
    """The sources that a query reads."""
    if query.source is not None:
        yield query.source
    elif query.target is not None:
        for name in checked.sources_of(query.target.relation, pipeline.sources):
            yield pipeline.sources[name]
