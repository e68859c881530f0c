"""`tidelog.read` and `tidelog.scan` against a real broker: places, columns, kinds of value."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import tidelog
from tidelog.arrow import values
from tidelog.arrow.scan import DataLossError
from tidelog.arrow.values import UndecodableError, decode_json
from tidelog.client.admin import NewTopic, create_topic, delete_records
from tidelog.client.blocking import Client
from tidelog.client.operation import UnknownPartitionError, UnknownTopicError
from tidelog.model import TopicPartition
from tidelog.testing import Broker

PARTITIONS = 3
PER_PARTITION = 100
FIRST_MS = 1_700_000_000_000


@pytest.fixture
def servers(tidelog_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", tidelog_broker.bootstrap_servers)
    return tidelog_broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, tidelog_topic: str) -> str:
    """Record n of partition p has timestamp FIRST_MS + 1000 n and the value {"n": n}."""
    name = f"{tidelog_topic}-read"
    with Client(servers) as client:
        client.run(create_topic(client.cluster, NewTopic(name, PARTITIONS)))
    producer = Producer({"bootstrap.servers": servers})
    for n in range(PER_PARTITION):
        for partition in range(PARTITIONS):
            producer.produce(
                name, b'{"n": %d}' % n, key=b"k%d" % partition, partition=partition,
                timestamp=FIRST_MS + 1000 * n, headers={"h": b"x"},
            )  # fmt: skip
    assert producer.flush(30) == 0
    return name


def offsets(table: pa.Table) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in table.select(["partition", "offset"]).to_pylist():
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def same(start: int, end: int) -> dict[int, list[int]]:
    return {partition: list(range(start, end)) for partition in range(PARTITIONS) if start < end}


def test_a_topic_is_read_whole_and_in_order(topic: str) -> None:
    table = tidelog.read(topic)
    assert table.column_names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    assert offsets(table) == same(0, PER_PARTITION)
    assert table["partition"].to_pylist() == sorted(table["partition"].to_pylist())
    assert table["value"][0].as_py() == b'{"n": 0}'


AT_10 = datetime.fromtimestamp(FIRST_MS / 1000 + 10, UTC)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", (0, 100)),
        (20, 30, (20, 30)),
        (20, 1_000, (20, 100)),
        (-5, "latest", (95, 100)),
        ("earliest", -5, (0, 95)),
        (200, "latest", (200, 0)),
        (30, 20, (30, 0)),
        (AT_10, AT_10 + timedelta(seconds=5), (10, 15)),
        (AT_10 - timedelta(milliseconds=1), 11, (10, 11)),
        (AT_10.isoformat(), "latest", (10, 100)),
        (AT_10.strftime("%Y-%m-%dT%H:%M:%SZ"), 12, (10, 12)),
        (AT_10.astimezone().replace(tzinfo=None), 12, (10, 12)),
        (datetime.now(UTC) + timedelta(days=1), "latest", (100, 0)),
        (timedelta(days=1), "latest", (100, 0)),
        (timedelta(days=10_000), "latest", (0, 100)),
    ],
)
def test_every_kind_of_place(topic: str, start: Any, end: Any, expected: tuple[int, int]) -> None:
    assert offsets(tidelog.read(topic, start, end)) == same(*expected)


def test_places_may_differ_by_partition(topic: str) -> None:
    table = tidelog.read(topic, start={0: 90, 1: AT_10}, end={1: 12, 2: -99})
    assert offsets(table) == {0: list(range(90, 100)), 1: [10, 11], 2: [0]}
    assert offsets(tidelog.read(topic, -1, partitions=[2])) == {2: [99]}
    assert tidelog.read(topic, partitions=[]).num_rows == 0


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"start": "yesterday"}, ValueError, "'yesterday' is no place"),
        ({"start": 1.5}, TypeError, "1.5 is no place"),
        ({"start": {7: 0}}, ValueError, "partition 7 is not among"),
        ({"partitions": [7]}, UnknownPartitionError, "has no partition 7"),
        ({"columns": ["velue"]}, ValueError, "no column 'velue'"),
        ({"columns": "value"}, TypeError, "a list of names"),
        ({"value": "avro"}, ValueError, "value is one of bytes, text, json"),
        ({"key": "json"}, ValueError, "key is one of"),
        ({"isolation": "serializable"}, ValueError, "isolation is one of"),
        ({"limit": -1}, ValueError, "limit"),
        ({"bootstrap": "x"}, TypeError, "bootstrap"),
    ],
)
def test_what_makes_no_sense_is_refused(
    topic: str, options: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        tidelog.read(topic, **options)
    with pytest.raises(error, match=told):
        list(tidelog.scan(topic, **options))


def test_a_topic_that_is_not_there(servers: str) -> None:
    with pytest.raises(UnknownTopicError):
        tidelog.read("no-such-topic", bootstrap_servers=servers)


def test_columns_are_chosen_and_named_in_order(topic: str) -> None:
    table = tidelog.read(topic, columns=["offset", "headers"], limit=7)
    assert table.column_names == ["offset", "headers"]
    assert table.num_rows == 7
    assert table["headers"][0].as_py() == [{"key": "h", "value": b"x"}]
    assert tidelog.read(topic, limit=0).num_rows == 0


def test_a_scan_is_a_read_in_pieces(topic: str) -> None:
    batches = list(tidelog.scan(topic, 5, 60, columns=["partition", "offset"]))
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert offsets(pa.Table.from_batches(batches)) == same(5, 60)
    assert sum(batch.num_rows for batch in tidelog.scan(topic, limit=42)) == 42
    early = tidelog.scan(topic)
    next(early)
    early.close()  # type: ignore[attr-defined]


def test_offsets_that_are_gone_are_told(servers: str, topic: str) -> None:
    with Client(servers) as client:
        client.run(delete_records(client.cluster, {TopicPartition(topic, 0): 40}))
    with pytest.raises(DataLossError, match="offsets 0 to 39 are lost"):
        tidelog.read(topic, start=0)
    assert offsets(tidelog.read(topic))[0] == list(range(40, 100))


def test_values_as_text_and_json(topic: str) -> None:
    table = tidelog.read(topic, 3, 5, columns=["key", "value"], key="text", value="json")
    assert table["value"].type == pa.struct([("n", pa.int64())])
    assert table.to_pylist() == [
        {"key": f"k{partition}", "value": {"n": n}} for partition in range(3) for n in (3, 4)
    ]
    texts = tidelog.read(topic, 0, 1, columns=["value"], value="text")
    assert texts["value"].to_pylist() == ['{"n": 0}'] * PARTITIONS

    schema = pa.schema([("n", pa.float64()), ("missing", pa.string())])
    for batch in tidelog.scan(topic, 0, 2, columns=["value"], value=schema):
        assert batch.schema.field("value").type == pa.struct(list(schema))
        assert batch["value"].to_pylist() == [
            {"n": 0.0, "missing": None},
            {"n": 1.0, "missing": None},
        ]
    with pytest.raises(ValueError, match="scan decodes JSON with a schema"):
        tidelog.scan(topic, value="json")
    assert tidelog.read(topic, 0, 0, value=schema)["value"].type == pa.struct(list(schema))


def table_of(*found: bytes | None) -> pa.Table:
    chunks = [pa.array([each], pa.binary()) for each in found]
    return pa.table({"offset": range(len(found)), "value": pa.chunked_array(chunks, pa.binary())})


def test_json_values_keep_their_rows() -> None:
    table = table_of(b'{"a": 1}', None, b'{"a":\n 2.5,\r\n "b": ["x"]}', b"{}", b"null", None)
    assert decode_json(table)["value"].to_pylist() == [
        {"a": 1.0, "b": None}, None, {"a": 2.5, "b": ["x"]}, {"a": None, "b": None}, None, None,
    ]  # fmt: skip
    assert decode_json(table_of(b"1", b"2"))["value"].to_pylist() == [1, 2]
    assert decode_json(table_of(None, None))["value"].to_pylist() == [None, None]
    assert decode_json(table_of())["value"].to_pylist() == []


@pytest.mark.parametrize(
    "bad",
    [b"", b" ", b"{", b'{"a": 1}{"a": 2}', b'{"a": 1}}\n{"v": {"a": 2}', b"\xff", b'{"a": "\xff"}',
     b'"text"', b'{"a": []}', b'{"a": 1}, "w": 2'],
)  # fmt: skip
def test_a_value_that_is_not_one_such_object_is_told(bad: bytes) -> None:
    with pytest.raises(UndecodableError) as told:
        decode_json(table_of(b'{"a": 1}', None, bad, b'{"a": 3}'))
    assert "offset 2" in str(told.value) or "more than one" in str(told.value) or b"\xff" in bad


def test_types_agree_beyond_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_BLOCK_BYTES", 30)
    table = table_of(b'{"a": 1}', b'{"a": 2.5}', b'{"a": null}', b'{"b": "x"}')
    assert decode_json(table)["value"].to_pylist() == [
        {"a": 1.0, "b": None}, {"a": 2.5, "b": None}, {"a": None, "b": None}, {"a": None, "b": "x"},
    ]  # fmt: skip
    with pytest.raises(UndecodableError, match="offset 3"):
        decode_json(table_of(b'{"a": 1}', b'{"a": 2}', None, b"x", b"{}"))


def test_without_pyarrow_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import tidelog\n"
        "try: tidelog.read\n"
        "except ImportError as error: print(error)\n"
        "print(hasattr(tidelog, 'write'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "tidelog.read needs pyarrow: pip install 'tidelog[arrow]'", "False",
    ]  # fmt: skip
