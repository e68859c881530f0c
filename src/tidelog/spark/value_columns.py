"""Values of records as columns, decoded in the JVM; `tidelog.spark.decode` is this module's.

A value that cannot be read, or does not fit, has a reason and stops nothing. What is looked at:
the text is UTF-8 and JSON (or CSV), a field is of the type that the schema gives it, one that is
`NOT NULL` is there, nothing stands behind a JSON object. Of the last only what happens by accident
is found, for little cost: text, or another object that no comma precedes.

Python cannot do this inside the data source at the speed of the JVM: `docs/decisions/0002`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from tidelog.config.table import hint
from tidelog.spark.option_values import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Observation

DECODED: Final = "decoded"
REASON: Final = "reason"
FORMATS: Final = ("json", "csv", "text")
PREFIXES: Final = ("none", "confluent")
NULLS: Final = ("bad", "keep", "drop")
# What the row is called until it is complete, with the field that tells whether it could be read.
ROW: Final = "_tidelog_row"
_CORRUPT: Final = "_tidelog_corrupt"
_TEXT: Final = "_tidelog_text"
_PREFIX_BYTES: Final = 5
_BLANKS: Final = " \t\r\n"
# Between two objects without a comma; else this stands in strings alone.
_SEAMS: Final = ("}{", "}\n{")


@dataclass(slots=True, frozen=True)
class Values:
    """How values are read.

    `schema` is Spark's DDL or a StructType (text has none, and one column, `value`). `format` is
    json, csv or text; `prefix` confluent skips the five bytes that Confluent's serializers write;
    a value that is null is bad, kept (its columns are null) or dropped with its record, by `nulls`.
    `options` are those of Spark's JSON or CSV reader.
    """

    schema: str | StructType = ""
    format: str = "json"
    prefix: str = "none"
    nulls: str = "bad"
    options: Mapping[str, str] = field(default_factory=dict)

    def fields(self) -> list[StructField]:
        """The columns of the rows; OptionError where the settings are none."""
        for name, chosen, known in (
            ("format", self.format, FORMATS),
            ("prefix", self.prefix, PREFIXES),
            ("nulls", self.nulls, NULLS),
        ):
            if chosen not in known:
                listed = ", ".join(known)
                raise OptionError(f"{name} is '{chosen}', none of {listed}{hint(chosen, known)}")
        if self.format == "text":
            return [StructField("value", StringType())]
        schema = parse_schema(self.schema) if isinstance(self.schema, str) else self.schema
        if not schema.fields:
            raise OptionError(f"{self.format} needs a schema, such as 'name STRING, at TIMESTAMP'")
        return schema.fields


def parse_schema(ddl: str) -> StructType:
    """Spark's DDL; AnalysisException where it is none."""
    schema = StructType.fromDDL(ddl) if ddl.strip() else StructType()
    # "INT" alone is a type, too.
    return schema if isinstance(schema, StructType) else StructType([StructField("value", schema)])


def decode(
    records: DataFrame, values: Values | str, counts: str | Observation = "records"
) -> DataFrame:
    """Records of a batch or a stream, with what their values say; a text is the schema of JSON.

        clicks = decode(records, "user STRING, page STRING, at TIMESTAMP")
        rows = clicks.where("reason IS NULL").select("decoded.*", "partition", "offset")
        dead = clicks.where("reason IS NOT NULL").select("key", "value", "reason")

    Two columns are added: `decoded`, a struct with the columns of the schema, and `reason`, which
    says why a value could not be read and is null where it could. `counts` names the observed
    metrics `records` and `bad`, which a stream's progress shows; two in one query need two names.
    """
    taken = [name for name in (DECODED, REASON) if name in records.columns]
    if "value" not in records.columns or taken:
        what = f"has a column {taken[0]} already" if taken else "has no column value"
        raise OptionError(f"what is to be decoded {what}; it has {', '.join(records.columns)}")
    given = Values(values) if isinstance(values, str) else values
    found = counted(with_rows(records, given), counts)
    row = F.struct(*(F.col(ROW)[each.name].alias(each.name) for each in given.fields()))
    return found.select(*records.columns, row.alias(DECODED), REASON)


def counted(rows: DataFrame, counts: str | Observation) -> DataFrame:
    """Rows of `with_rows`, counted.

    This also keeps a filter for bad records from being pushed under the decoding, which would then
    be done twice for each record.
    """
    return rows.observe(counts, F.count(F.lit(1)).alias("records"), F.count(REASON).alias("bad"))


def with_rows(records: DataFrame, values: Values) -> DataFrame:
    """Records with the columns `ROW` and `REASON`; those that are dropped are left out."""
    fields = values.fields()
    if values.nulls == "drop":
        records = records.where(F.col("value").isNotNull())
    payload = F.col("value")
    if values.prefix == "confluent":
        payload = F.expr(f"substring(value, {_PREFIX_BYTES + 1})")
    records = records.withColumn(_TEXT, payload.cast("string"))
    records = records.withColumn(ROW, _row(values, fields))
    return records.withColumn(REASON, _reason(values, fields)).drop(_TEXT)


def _row(values: Values, fields: list[StructField]) -> Column:
    text = F.col(_TEXT)
    if values.format == "text":
        return F.struct(text.alias("value"))
    schema = StructType([*_nullable(fields), StructField(_CORRUPT, StringType())])
    if values.format == "json":
        return F.from_json(text, schema, _options(values))
    return F.from_csv(text, schema.toDDL(), _options(values))


def _nullable(fields: list[StructField]) -> list[StructField]:
    return [StructField(each.name, each.dataType) for each in fields]


def _options(values: Values) -> dict[str, str]:
    return {**values.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def _reason(values: Values, fields: list[StructField]) -> Column:
    text, row = F.col(_TEXT), F.col(ROW)
    known = F.lit("the value is null" if values.nulls == "bad" else None).cast("string")
    reason = F.when(F.col("value").isNull(), known)
    if values.prefix == "confluent":
        begins = F.expr(f"length(value) >= {_PREFIX_BYTES} AND substring(value, 1, 1) = X'00'")
        reason = reason.when(~begins, "the value has no Confluent prefix")
    reason = reason.when(~F.is_valid_utf8(text), "the value is not UTF-8")
    if values.format == "text":
        return reason
    if values.format == "json":
        is_json = F.get_json_object(text, "$").isNotNull()
        why = F.when(is_json, "the value does not fit the schema").otherwise("the value is no JSON")
    else:
        why = F.lit("the value does not fit the schema")
        reason = reason.when(text == "", "the value is empty")
    reason = reason.when(row.isNull() | row[_CORRUPT].isNotNull(), why)
    if values.format == "json" and values.options.get("allowComments", "").lower() != "true":
        reason = reason.when(_goes_on(values, fields), "something stands behind the JSON object")
    for each in fields:
        if not each.nullable:
            reason = reason.when(row[each.name].isNull(), f"{each.name} is null")
    return reason


def _goes_on(values: Values, fields: list[StructField]) -> Column:
    """Whether something follows the object, which is where Spark stops reading.

    The last character tells of text. For another object the value is read once more, in brackets
    and with an end of our own, where it looks as if it had one: as a list it must have two.
    """
    text = F.col(_TEXT)
    looks_double = F.lit(False)
    for seam in _SEAMS:
        looks_double = looks_double | F.contains(text, F.lit(seam))
    listed = F.concat(F.lit('{"list":['), text, F.lit("\n,{}]}"))
    schema = StructType().add("list", ArrayType(StructType(_nullable(fields))))
    schema = schema.add(_CORRUPT, StringType())
    again = F.from_json(listed, schema, _options(values))
    one = again[_CORRUPT].isNull() & (F.size(again["list"]) == 2)
    brace = F.lit("}")
    ends = F.endswith(text, brace) | F.endswith(F.rtrim(text, F.lit(_BLANKS)), brace)
    return ~ends | (looks_double & ~F.coalesce(one, F.lit(False)))
