"""Records to rows and rows to records, in the JVM.

Reading: a record becomes the columns of its value's schema (json, csv), or a column `value` (text),
or stays as it is (raw); the columns that `record:` names stand beside them. A value that cannot be
read (`spark.value_columns`), or whose time would carry the watermark away, has a reason, and its
record goes where `bad_records` says. A dead letter keeps key, value and headers and gains the
headers of `DEAD_LETTER_HEADERS`.

Every source is observed under `observation_name`: how many records it gave and how many were bad.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from tidelog.arrow.record_columns import HEADERS, RECORD_COLUMNS
from tidelog.config.table import hint
from tidelog.config.yaml_tree import Mark
from tidelog.pipelines.declare.pipeline import (
    BadPolicy,
    PipelineError,
    Source,
    Target,
    TopicSink,
    ValueFormat,
    Watermark,
)
from tidelog.pipelines.run.explain import explain
from tidelog.pipelines.run.reports import OBSERVED
from tidelog.spark.value_columns import REASON, ROW, Values, counted, parse_schema, with_rows

if TYPE_CHECKING:
    from pyspark.sql import Observation

DEAD_LETTER_HEADERS: Final = (
    "tidelog.reason",
    "tidelog.topic",
    "tidelog.partition",
    "tidelog.offset",
    "tidelog.pipeline",
)


def observation_name(source: Source) -> str:
    """Under which the counts of a source stand in a query's progress."""
    return OBSERVED + source.name


def source_schema(source: Source) -> StructType:
    """The columns that the rows of a source have; PipelineError names the schema's line."""
    if source.value.format is ValueFormat.RAW:
        schema = _record_schema(source)
        _check_watermark(source, schema)
        return schema
    schema = StructType([StructField("value", StringType())])
    if source.value.schema is not None:
        try:
            schema = parse_schema(source.value.schema.text)
        except AnalysisException as error:
            raise PipelineError(explain(error, source.value.schema)) from None
        _check_case(schema, source.value.schema.mark)
    records = _record_schema(source)
    for name in source.record:
        if name.lower() in [each.lower() for each in schema.names]:
            raise PipelineError(
                f"{source.mark}: the column {name} of {source.name} is in its value's schema too"
            )
        schema = schema.add(records[name])
    _check_watermark(source, schema)
    return schema


def _check_case(schema: StructType, mark: Mark) -> None:
    seen: dict[str, str] = {}
    for name in schema.names:
        first = seen.setdefault(name.lower(), name)
        if first is not name:
            what = f"the schema has {first} and {name}, and SQL does not tell case apart"
            raise PipelineError(f"{mark}: {what}; rename one")


def _record_schema(source: Source) -> StructType:
    names = [name for name in RECORD_COLUMNS if name != "headers" or name in source.record]
    return record_schema(names)


def record_schema(names: Iterable[str]) -> StructType:
    """The schema of records with these columns."""
    return parse_schema(", ".join(f"{name} {RECORD_COLUMNS[name]}" for name in names))


def needed_columns(source: Source, *, dead_letters: bool = False) -> list[str]:
    """The columns of the records that a source's rows, or its dead letters, are made of."""
    if dead_letters:
        needed = {"key", "value", "topic", "partition", "offset", "headers"}
        if source.watermark is not None and source.watermark.column in source.record:
            needed.add(source.watermark.column)
    elif source.value.format is ValueFormat.RAW:
        needed = set(_record_schema(source).names)
    else:
        needed = {"value", *source.record}
        if source.bad_records.policy is BadPolicy.FAIL:
            needed |= {"topic", "partition", "offset"}
    return [name for name in RECORD_COLUMNS if name in needed]


def _check_watermark(source: Source, schema: StructType) -> None:
    mark = source.watermark
    if mark is None:
        return
    if mark.column not in schema.names:
        near = hint(mark.column, schema.names)
        raise PipelineError(f"{mark.mark}: {source.name} has no column {mark.column}{near}")
    kind = schema[mark.column].dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz"):
        raise PipelineError(f"{mark.mark}: {mark.column} is a {kind}, a watermark needs a time")


# ---- records to rows ----------------------------------------------------------------------


def read_rows(
    records: DataFrame, source: Source, observation: Observation | None = None
) -> DataFrame:
    """The rows of a source; its bad records are left out, or fail the query where asked."""
    schema = source_schema(source)
    decoded = _decoded(records, source, observation)
    if source.bad_records.policy is BadPolicy.FAIL:
        decoded = decoded.where(F.when(F.col(REASON).isNull(), True).otherwise(_raise(source)))
    else:
        decoded = decoded.where(F.col(REASON).isNull())
    if source.value.format is ValueFormat.RAW:
        rows = decoded.select(*(F.col(name) for name in schema.names))
    else:
        inner = [name for name in schema.names if name not in source.record]
        rows = decoded.select(
            *(F.col(ROW)[name].alias(name) for name in inner),
            *(F.col(name) for name in source.record),
        )
    if source.watermark is not None:
        mark = source.watermark
        rows = rows.withWatermark(mark.column, f"{mark.delay_ms} milliseconds")
    return rows


def read_dead_letters(
    records: DataFrame, source: Source, pipeline: str, observation: Observation | None = None
) -> DataFrame:
    """The bad records of a source as they go to its dead-letter topic."""
    source_schema(source)  # where it is none, this names its line
    decoded = _decoded(records, source, observation)
    texts = (
        F.col(REASON),
        F.col("topic"),
        F.col("partition").cast("string"),
        F.col("offset").cast("string"),
        F.lit(pipeline),
    )
    added = F.array(
        *(
            F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))
            for name, text in zip(DEAD_LETTER_HEADERS, texts, strict=True)
        )
    )
    added = F.concat(F.coalesce(F.col("headers"), F.array().cast(HEADERS)), added)
    return decoded.where(F.col(REASON).isNotNull()).select(
        "key", "value", added.cast(HEADERS).alias("headers")
    )


def _decoded(records: DataFrame, source: Source, observation: Observation | None) -> DataFrame:
    """Records with what their value says, and the reason where it says nothing that fits."""
    value = source.value
    if value.format is ValueFormat.RAW:
        decoded = records.withColumn(REASON, F.lit(None).cast("string"))
    else:
        values = Values(
            schema="" if value.schema is None else value.schema.text,
            format=str(value.format),
            prefix="confluent" if value.confluent_prefix else "none",
            nulls=str(value.nulls),
            options=value.options,
        )
        decoded = with_rows(records, values)
        if source.watermark is not None:
            ahead = _is_ahead(source, source.watermark)
            why = f"{source.watermark.column} is in the future, beyond max_future"
            decoded = decoded.withColumn(REASON, F.coalesce(REASON, F.when(ahead, why)))
    return counted(decoded, observation or observation_name(source))


def _is_ahead(source: Source, mark: Watermark) -> Column:
    """Whether a row would carry the watermark away, past all that is to come.

    Against the time of the micro-batch, which is in the checkpoint: the same when it is run again.
    """
    column = F.col(mark.column) if mark.column in source.record else F.col(ROW)[mark.column]
    limit = F.current_timestamp() + F.expr(f"INTERVAL {mark.max_future_ms} MILLISECONDS")
    return column.cast("timestamp") > limit


def _raise(source: Source) -> Column:
    place = F.concat(
        F.lit(f"source {source.name}: a bad record in "),
        F.concat_ws("-", F.col("topic"), F.col("partition").cast("string")),
        F.lit(" at offset "),
        F.col("offset").cast("string"),
        F.lit(": "),
        F.col(REASON),
    )
    return F.raise_error(place).cast("boolean")


def quoted(name: str) -> Column:
    """The column of this very name: without quotes a dot would mean a field of a column."""
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")


# ---- rows to records ----------------------------------------------------------------------


def write_records(rows: DataFrame, target: Target) -> DataFrame:
    """The records of a target's rows, with the columns that the sink takes."""
    sink = target.sink
    assert isinstance(sink, TopicSink)
    for name in filter(None, (sink.key, sink.partition, sink.tombstone, *sink.headers.values())):
        _check_column(rows, name, target)
    columns = [_value_column(rows, sink, target).alias("value")]
    if sink.value is ValueFormat.RAW:
        kept = [name for name in RECORD_COLUMNS if name in rows.columns]
        columns += [F.col(name) for name in kept if name in ("partition", "headers", "timestamp")]
        key = sink.key or ("key" if "key" in kept else "")
    else:
        key = sink.key
    if key:
        binary = isinstance(rows.schema[key].dataType, BinaryType)
        column = quoted(key)
        columns.insert(0, (column if binary else column.cast("string")).alias("key"))
    if sink.partition:
        columns.append(quoted(sink.partition).cast("int").alias("partition"))
    if sink.headers:
        pairs = [
            F.struct(F.lit(name).alias("key"), quoted(column).cast("string").cast("binary")
                     .alias("value"))
            for name, column in sink.headers.items()
        ]  # fmt: skip
        columns.append(F.array(*pairs).cast(HEADERS).alias("headers"))
    return rows.select(*columns)


def _value_column(rows: DataFrame, sink: TopicSink, target: Target) -> Column:
    if sink.value is ValueFormat.RAW:
        _check_column(rows, "value", target)
        return F.col("value")
    if not sink.tombstone:
        return _encoded(rows, sink, target)
    kind = rows.schema[sink.tombstone].dataType.simpleString()
    if kind != "boolean":
        what = f"{sink.tombstone} is a {kind}, a tombstone needs true or false"
        raise PipelineError(f"{target.mark}: {what}")
    deleted = F.coalesce(quoted(sink.tombstone), F.lit(False))
    return F.when(~deleted, _encoded(rows, sink, target))


def _encoded(rows: DataFrame, sink: TopicSink, target: Target) -> Column:
    kept = [name for name in rows.columns if name != sink.tombstone]
    if sink.value is ValueFormat.JSON:
        return F.to_json(F.struct(*(quoted(name) for name in kept)))
    used = {sink.key, sink.partition, *sink.headers.values()}
    left = [name for name in kept if name not in used] or list(filter(None, [sink.key]))
    if sink.value is ValueFormat.CSV:
        return F.to_csv(F.struct(*(quoted(name) for name in kept)))
    if len(left) != 1:
        raise PipelineError(
            f"{target.mark}: target {target.name} writes text, which is one column; it has"
            f" {', '.join(left) or 'none'}"
        )
    return quoted(left[0]).cast("string")


def _check_column(rows: DataFrame, name: str, target: Target) -> None:
    if name not in rows.columns:
        near = hint(name, rows.columns) or f"; it has {', '.join(rows.columns)}"
        raise PipelineError(
            f"{target.mark}: {target.relation} has no column {name} for {target.name}{near}"
        )
