"""Which columns and modes a writer takes, without starting Spark."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from tidelog.errors import ConfigError
from tidelog.spark.sink.writer import (
    ColumnError,
    Written,
    batch_writer,
    count_records,
    stream_writer,
)

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
NO_TOPIC = {"kafka.bootstrap.servers": "127.0.0.1:1"}


TEXT, DATA, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def headers(*fields: tuple[str, DataType]) -> ArrayType:
    entry = StructType()
    for name, kind in fields:
        entry = entry.add(name, kind)
    return ArrayType(entry)


def schema(**columns: DataType) -> StructType:
    found = StructType()
    for name, kind in columns.items():
        found = found.add(name, kind)
    return found


@pytest.mark.parametrize(
    "columns",
    [
        {"value": TEXT},
        {"value": DATA, "key": TEXT},
        {"value": TEXT, "key": DATA, "partition": INT, "topic": TEXT, "timestamp": TimestampType()},
        {"value": DATA, "headers": headers(("key", TEXT), ("value", DATA))},
        {"value": TEXT, "offset": LONG, "timestampType": INT, "other": MapType(TEXT, INT)},
        {"value": VarcharType(9), "key": CharType(3)},
    ],
)
def test_the_columns_of_the_connector_are_taken(columns: dict[str, DataType]) -> None:
    for writer in (batch_writer, stream_writer):
        taken = writer(schema(**columns), OPTIONS, False)
        assert pickle.loads(pickle.dumps(taken))._settings == taken._settings


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": TEXT}, "column 'value' is missing"),
        ({"value": INT}, "column 'value' has the type int; it must be a string or binary"),
        ({"value": TEXT, "key": LONG}, "column 'key' has the type bigint"),
        ({"value": TEXT, "topic": DATA}, "column 'topic' has the type binary; it must be a string"),
        ({"value": TEXT, "partition": LONG}, "column 'partition' has the type bigint; it must be"),
        ({"value": TEXT, "headers": MapType(TEXT, DATA)}, "column 'headers' has the type map"),
        ({"value": TEXT, "headers": ArrayType(TEXT)}, "column 'headers' has the type array"),
        ({"value": TEXT, "headers": headers(("value", DATA), ("key", TEXT))}, "column 'headers'"),
        ({"value": TEXT, "timestamp": TEXT}, "column 'timestamp' has the type string"),
    ],
)
def test_a_column_of_a_wrong_type_is_named(columns: dict[str, DataType], complaint: str) -> None:
    for writer in (batch_writer, stream_writer):
        with pytest.raises(ColumnError, match=complaint):
            writer(schema(**columns), OPTIONS, False)


def test_a_topic_comes_from_the_option_or_from_a_column() -> None:
    assert batch_writer(schema(value=TEXT, topic=TEXT), NO_TOPIC, False)
    with pytest.raises(ColumnError, match="set the option 'topic' or add a column 'topic'"):
        batch_writer(schema(value=TEXT), NO_TOPIC, False)


def test_overwriting_and_complete_results_are_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="append"):
        batch_writer(schema(value=TEXT), OPTIONS, True)
    with pytest.raises(ConfigError, match="foreachBatch"):
        stream_writer(schema(value=TEXT), OPTIONS, True)


def test_the_messages_of_tasks_add_up() -> None:
    messages = [Written({("t", 0): 3, ("t", 1): 2}), None, Written({("u", 0): 1})]
    assert count_records(messages) == 6
    assert pickle.loads(pickle.dumps(messages[0])) == messages[0]
