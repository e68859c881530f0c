"""Records to rows and rows to records, in the JVM.

Reading: a record becomes the columns of its value's schema (json, csv), or a column `value` (text),
or stays as it is (raw); the columns that `record:` names stand beside them. A value that cannot be
read has a reason, and its record goes where `bad_records` says. A dead letter keeps key, value and
headers and gains the headers of `DEAD_LETTER_HEADERS`.

Every source is observed under `observation_name`: how many records it gave and how many were bad.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from tidelog.config.table import hint
from tidelog.spark.pipeline.explain import explain
from tidelog.spark.pipeline.model import (
    RECORD_COLUMNS,
    BadPolicy,
    Nulls,
    PipelineError,
    Source,
    Target,
    TopicSink,
    ValueFormat,
)
from tidelog.spark.pipeline.progress import OBSERVED

if TYPE_CHECKING:
    from pyspark.sql import Observation

DEAD_LETTER_HEADERS: Final = (
    "tidelog.reason",
    "tidelog.topic",
    "tidelog.partition",
    "tidelog.offset",
    "tidelog.pipeline",
)
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
_RECORD_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": HEADERS_TYPE,
}
_CORRUPT: Final = "_tidelog_corrupt"
_ROW: Final = "_tidelog_row"
_TEXT: Final = "_tidelog_text"
_REASON: Final = "_tidelog_reason"
_PREFIX_BYTES: Final = 5


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
            schema = _parse(source.value.schema.text)
        except AnalysisException as error:
            raise PipelineError([explain(error, source.value.schema)]) from None
    records = _record_schema(source)
    for name in source.record:
        if name in schema.names:
            raise PipelineError(
                [f"{source.mark}: the column {name} of {source.name} is in its value's schema too"]
            )
        schema = schema.add(records[name])
    _check_watermark(source, schema)
    return schema


def _record_schema(source: Source) -> StructType:
    names = [name for name in RECORD_COLUMNS if name != "headers" or name in source.record]
    return record_schema(names)


def record_schema(names: Iterable[str]) -> StructType:
    """The schema of records with these columns."""
    return _parse(", ".join(f"{name} {_RECORD_TYPES[name]}" for name in names))


def _parse(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    # "INT" alone is a type, too.
    return schema if isinstance(schema, StructType) else StructType([StructField("value", schema)])


def needed_columns(source: Source, *, dead_letters: bool = False) -> list[str]:
    """The columns of the records that a source's rows, or its dead letters, are made of."""
    if dead_letters:
        needed = {"key", "value", "topic", "partition", "offset", "headers"}
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
        raise PipelineError([f"{mark.mark}: {source.name} has no column {mark.column}{near}"])
    kind = schema[mark.column].dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz"):
        raise PipelineError([f"{mark.mark}: {mark.column} is a {kind}, a watermark needs a time"])


# ---- records to rows ----------------------------------------------------------------------


def read_rows(
    records: DataFrame, source: Source, observation: Observation | None = None
) -> DataFrame:
    """The rows of a source; its bad records are left out, or fail the query where asked."""
    schema = source_schema(source)
    decoded = _decoded(records, source, schema)
    counts = (F.count(F.lit(1)).alias("records"), F.count(_REASON).alias("bad"))
    # This also keeps the filter below from being pushed under the decoding, which would then be
    # done twice for each record.
    decoded = decoded.observe(observation or observation_name(source), *counts)
    if source.bad_records.policy is BadPolicy.FAIL:
        decoded = decoded.where(F.when(F.col(_REASON).isNull(), True).otherwise(_raise(source)))
    else:
        decoded = decoded.where(F.col(_REASON).isNull())
    if source.value.format is ValueFormat.RAW:
        rows = decoded.select(*(F.col(name) for name in schema.names))
    else:
        inner = [name for name in schema.names if name not in source.record]
        rows = decoded.select(
            *(F.col(_ROW)[name].alias(name) for name in inner),
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
    decoded = _decoded(records, source, source_schema(source))
    counts = (F.count(F.lit(1)).alias("records"), F.count(_REASON).alias("bad"))
    decoded = decoded.observe(observation or observation_name(source), *counts)
    texts = (
        F.col(_REASON),
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
    added = F.concat(F.coalesce(F.col("headers"), F.array().cast(HEADERS_TYPE)), added)
    return decoded.where(F.col(_REASON).isNotNull()).select(
        "key", "value", added.cast(HEADERS_TYPE).alias("headers")
    )


def _decoded(records: DataFrame, source: Source, schema: StructType) -> DataFrame:
    """Records with what their value says, and the reason where it says nothing that fits."""
    value = source.value
    if value.format is ValueFormat.RAW:
        return records.withColumn(_REASON, F.lit(None).cast("string"))
    if value.nulls is Nulls.DROP:
        records = records.where(F.col("value").isNotNull())
    payload = F.col("value")
    if value.confluent_prefix:
        payload = F.expr(f"substring(value, {_PREFIX_BYTES + 1})")
    fields = [field for field in schema.fields if field.name not in source.record]
    records = records.withColumn(_TEXT, payload.cast("string"))
    records = records.withColumn(_ROW, _row(source, fields))
    return records.withColumn(_REASON, _reason(source, fields))


def _row(source: Source, fields: list[StructField]) -> Column:
    text = F.col(_TEXT)
    value = source.value
    if value.format is ValueFormat.TEXT:
        return F.struct(text.alias("value"))
    nullable = [StructField(field.name, field.dataType) for field in fields]
    schema = StructType([*nullable, StructField(_CORRUPT, StringType())])
    options = {**value.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if value.format is ValueFormat.JSON:
        return F.from_json(text, schema, options)
    return F.from_csv(text, schema.toDDL(), options)


def _reason(source: Source, fields: list[StructField]) -> Column:
    value, text, row = source.value, F.col(_TEXT), F.col(_ROW)
    is_null = F.col("value").isNull()
    known = F.lit("the value is null" if value.nulls is Nulls.BAD else None).cast("string")
    reason = F.when(is_null, known)
    if value.confluent_prefix:
        begins = F.expr(f"length(value) >= {_PREFIX_BYTES} AND substring(value, 1, 1) = X'00'")
        reason = reason.when(~begins, "the value has no Confluent prefix")
    reason = reason.when(~F.is_valid_utf8(text), "the value is not UTF-8")
    if value.format is ValueFormat.TEXT:
        return reason
    if value.format is ValueFormat.JSON:
        is_json = F.get_json_object(text, "$").isNotNull()
        why = F.when(is_json, "the value does not fit the schema").otherwise("the value is no JSON")
    else:
        why = F.lit("the value does not fit the schema")
        reason = reason.when(text == "", "the value is empty")
    reason = reason.when(row.isNull() | row[_CORRUPT].isNotNull(), why)
    for field in fields:
        if not field.nullable:
            reason = reason.when(row[field.name].isNull(), f"{field.name} is null")
    return reason


def _raise(source: Source) -> Column:
    place = F.concat(
        F.lit(f"source {source.name}: a bad record in "),
        F.concat_ws("-", F.col("topic"), F.col("partition").cast("string")),
        F.lit(" at offset "),
        F.col("offset").cast("string"),
        F.lit(": "),
        F.col(_REASON),
    )
    return F.raise_error(place).cast("boolean")


# ---- rows to records ----------------------------------------------------------------------


def write_records(rows: DataFrame, target: Target) -> DataFrame:
    """The records of a target's rows, with the columns that the sink takes."""
    sink = target.sink
    assert isinstance(sink, TopicSink)
    for name in filter(None, (sink.key, sink.partition, *sink.headers.values())):
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
        columns.insert(0, (F.col(key) if binary else F.col(key).cast("string")).alias("key"))
    if sink.partition:
        columns.append(F.col(sink.partition).cast("int").alias("partition"))
    if sink.headers:
        pairs = [
            F.struct(F.lit(name).alias("key"), F.col(column).cast("string").cast("binary")
                     .alias("value"))
            for name, column in sink.headers.items()
        ]  # fmt: skip
        columns.append(F.array(*pairs).cast(HEADERS_TYPE).alias("headers"))
    return rows.select(*columns)


def _value_column(rows: DataFrame, sink: TopicSink, target: Target) -> Column:
    if sink.value is ValueFormat.RAW:
        _check_column(rows, "value", target)
        return F.col("value")
    if sink.value is ValueFormat.JSON:
        return F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns)))
    used = {sink.key, sink.partition, *sink.headers.values()}
    left = [name for name in rows.columns if name not in used] or [sink.key]
    if sink.value is ValueFormat.CSV:
        return F.to_csv(F.struct(*(F.col(f"`{name}`") for name in rows.columns)))
    if len(left) != 1:
        raise PipelineError(
            [
                f"{target.mark}: target {target.name} writes text, which is one column; it has"
                f" {', '.join(left) or 'none'}"
            ]
        )
    return F.col(f"`{left[0]}`").cast("string")


def _check_column(rows: DataFrame, name: str, target: Target) -> None:
    if name not in rows.columns:
        near = hint(name, rows.columns) or f"; it has {', '.join(rows.columns)}"
        raise PipelineError(
            [f"{target.mark}: {target.relation} has no column {name} for {target.name}{near}"]
        )
