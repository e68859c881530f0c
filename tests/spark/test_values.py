"""`tidelog.spark.decode`: values as columns, with a reason where they are none. P8: poison."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.spark import Values, decode
from tidelog.spark.option_values import OptionError


def records(spark: Any, values: list[bytes | None]) -> Any:
    rows = [(offset, value) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, "offset BIGINT, value BINARY")


def reasons(spark: Any, values: Values | str, given: list[bytes | None]) -> list[str | None]:
    found = decode(records(spark, given), values).orderBy("offset").collect()
    assert len(found) == len(given)
    return [row["reason"] for row in found]


def test_rows_and_reasons_stand_beside_the_record(spark: Any) -> None:
    from pyspark.sql import Observation

    seen = Observation()
    given = [b'{"user": "a", "n": 1, "new": true}', b'{"n": 2}', b"poison", None]
    frame = decode(records(spark, given), "user STRING NOT NULL, n INT", seen)
    assert frame.columns == ["offset", "value", "decoded", "reason"]
    found = [row.asDict(recursive=True) for row in frame.collect()]
    assert seen.get == {"records": 4, "bad": 3}
    assert [each["decoded"] for each in found] == [
        {"user": "a", "n": 1},
        {"user": None, "n": 2},
        {"user": None, "n": None},
        {"user": None, "n": None},
    ]
    assert [each["reason"] for each in found] == [
        None, "user is null", "the value is no JSON", "the value is null",
    ]  # fmt: skip


def test_other_formats_prefixes_and_nulls(spark: Any) -> None:
    text = decode(records(spark, [b"a", b"\xff"]), Values(format="text")).collect()
    assert text[0]["decoded"]["value"] == "a"
    assert text[1]["reason"] == "the value is not UTF-8"
    csv = Values("n INT, s STRING", format="csv", options={"sep": ";"})
    assert reasons(spark, csv, [b"1;x", b"y;x"]) == [None, "the value does not fit the schema"]
    prefixed = Values("n INT", prefix="confluent", nulls="keep")
    given = [b'\0\0\0\0\7{"n": 1}', b'{"n": 1}', None]
    assert reasons(spark, prefixed, given) == [None, "the value has no Confluent prefix", None]


def test_what_stands_behind_a_json_object_makes_the_record_bad(spark: Any) -> None:
    """Spark itself stops reading where the object ends."""
    good = [
        b'{"n": 1}',
        b' {"n": 1}\r\n\t ',
        b'{"n": 1, "s": "}{"}',
        b'{"n": 1, "s": "} x"}',
        b'{"n": 1, "o": [{}, {"p": {}}]}',
    ]
    assert reasons(spark, "n INT, s STRING", good) == [None] * len(good)
    behind = [b'{"n": 1} x', b'{"n": 1}]', b'{"n": 1}{"n": 2}', b'{"n": 1}\n{"n": 2}', b'{"n":1},']
    told = ["something stands behind the JSON object"] * len(behind)
    assert reasons(spark, "n INT, s STRING", behind) == told
    commented = Values("n INT", options={"allowComments": "true"})
    assert reasons(spark, commented, [b'{"n": 1} // one']) == [None]


def test_a_field_of_another_type_is_told_and_a_new_one_is_no_fault(spark: Any) -> None:
    """P8: producers change what they send."""
    given = [
        b'{"n": 1}',
        b'{"n": 1, "more": 2}',
        b'{"n": "one"}',
        b'{"n": {"at": 1}}',
        b'{"n": []}',
    ]
    bad = "the value does not fit the schema"
    assert reasons(spark, "n INT", given) == [None, None, bad, bad, bad]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (Values("n INT", format="jsn"), "format is 'jsn', none of json, csv, text; did you mean"),
        (Values("n INT", prefix="magic"), "prefix is 'magic', none of none, confluent"),
        (Values("n INT", nulls="no"), "nulls is 'no', none of bad, keep, drop"),
        (Values(), "json needs a schema, such as"),
    ],
)
def test_settings_that_are_none_are_named(spark: Any, values: Values, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        decode(records(spark, []), values)


def test_columns_that_are_in_the_way_are_named(spark: Any) -> None:
    frame = records(spark, [])
    with pytest.raises(OptionError, match="has a column reason already"):
        decode(frame.selectExpr("*", "'x' AS reason"), "n INT")
    with pytest.raises(OptionError, match="has no column value; it has offset"):
        decode(frame.select("offset"), "n INT")
