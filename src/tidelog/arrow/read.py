"""`tidelog.read` and `tidelog.scan`: a topic as an Arrow table, without Spark.

    table = tidelog.read("orders", start="2026-01-01T00:00Z", value="json")
    for batch in tidelog.scan("orders", columns=["offset", "value"]): ...

Where to begin and to end, for all partitions or each by a dictionary (those that it does not name
are read whole):

- ``"earliest"``, ``"latest"``
- an offset; below zero, so many records from the end of each partition
- a `datetime`, or a text like ``"2026-01-01T00:00Z"`` (local time without a zone): the first record
  at or after it
- a `timedelta`: so long ago

Both read what is there when they are called and never wait for more; `end` is not included. Offsets
that the log does not keep any more are a `DataLossError`, not a shorter table. `read` gives rows by
partition and offset; `scan` gives them as they come, in order within a partition, and holds a few
fetches at a time, however large the topic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypedDict, Unpack

import pyarrow as pa

from tidelog.arrow.columns import record_schema
from tidelog.arrow.decode import Decoder
from tidelog.arrow.scan import PartitionRange, Scan
from tidelog.arrow.values import decode_json, decode_text
from tidelog.client.admin import describe_topic
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.offsets import LATEST, Start, list_offsets, resolve_offsets
from tidelog.client.operation import UnknownPartitionError
from tidelog.client.settings import ConsumerSettings
from tidelog.model import Isolation, TopicPartition

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"
# Larger than for a consumer that shares a broker with others: a scan wants it all.
_PARTITION_BYTES = 4 << 20
_FETCH_BYTES = 32 << 20

Place = str | int | datetime | timedelta
Places = Place | Mapping[int, Place]


class Options(TypedDict, total=False):
    """What `read` and `scan` take by name.

    - `bootstrap_servers`: the brokers to ask first; else ``TIDELOG_BOOTSTRAP_SERVERS``, else
      ``127.0.0.1:9092``
    - `columns`: of key, value, topic, partition, offset, timestamp, timestampType and headers; all
      but the headers
    - `partitions`: all
    - `limit`: at most so many records
    - `key`: ``"bytes"`` or ``"text"``
    - `value`: ``"bytes"``, ``"text"``, ``"json"`` (a struct column; `scan` needs its schema) or the
      `pyarrow.Schema` of JSON values, of which other fields are left out
    - `isolation`: ``"read_uncommitted"`` or ``"read_committed"``
    """

    bootstrap_servers: str
    columns: Sequence[str]
    partitions: Sequence[int]
    limit: int
    key: Literal["bytes", "text"]
    value: Literal["bytes", "text", "json"] | pa.Schema
    isolation: Literal["read_uncommitted", "read_committed"]


@dataclass(slots=True)
class _Request:
    """The same as `Options`, with what holds where nothing was said."""

    bootstrap_servers: str | None = None
    columns: Sequence[str] | None = None
    partitions: Sequence[int] | None = None
    limit: int | None = None
    key: str = "bytes"
    value: str | pa.Schema = "bytes"
    isolation: str = "read_uncommitted"

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise TypeError("columns is a list of names")
        if self.limit is not None and self.limit < 0:
            raise ValueError("limit is a number of records")
        _choose("key", self.key, ("bytes", "text"))
        if not isinstance(self.value, pa.Schema):
            _choose("value", self.value, ("bytes", "text", "json"))
        _choose("isolation", self.isolation, ("read_uncommitted", "read_committed"))

    @property
    def servers(self) -> str:
        given = self.bootstrap_servers or os.environ.get("TIDELOG_BOOTSTRAP_SERVERS")
        return given or DEFAULT_BOOTSTRAP_SERVERS

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(record_schema(None if self.columns is None else tuple(self.columns)).names)

    @property
    def settings(self) -> ConsumerSettings:
        return ConsumerSettings(
            max_bytes=_FETCH_BYTES,
            partition_max_bytes=_PARTITION_BYTES,
            isolation=Isolation[self.isolation.upper()],
        )


def read(
    topic: str, start: Places = "earliest", end: Places = "latest", **options: Unpack[Options]
) -> pa.Table:
    """The records of a topic as one Arrow table; the module tells what `start` and `end` may be.

    >>> import tidelog
    >>> table = tidelog.read("orders", start=-100, value="json")  # doctest: +SKIP
    >>> table.to_pandas()                                         # doctest: +SKIP
    """
    request = _Request(**options)
    names = request.names
    # Decoded even where nobody asked: they tell where a batch belongs, and which record is bad.
    decoded = record_schema(tuple(dict.fromkeys((*names, "partition", "offset"))))
    with Consumer(request.servers, request.settings) as consumer:
        ranges = _ranges(consumer, topic, (start, end), request)
        batches = list(_limited(Scan(consumer, ranges, Decoder(decoded)), request.limit))
    batches.sort(key=lambda batch: batch["partition"][0].as_py())
    return _decoded(pa.Table.from_batches(batches, decoded), request).select(list(names))


def scan(
    topic: str, start: Places = "earliest", end: Places = "latest", **options: Unpack[Options]
) -> Iterator[pa.RecordBatch]:
    """As `read`, a record batch at a time; close the iterator to stop early.

    >>> import tidelog
    >>> for batch in tidelog.scan("orders"): print(batch.num_rows)  # doctest: +SKIP
    """
    request = _Request(**options)
    if request.value == "json":
        raise ValueError("scan decodes JSON with a schema: value=pyarrow.schema([…])")
    schema = record_schema(request.names)

    def batches() -> Iterator[pa.RecordBatch]:
        with Consumer(request.servers, request.settings) as consumer:
            ranges = _ranges(consumer, topic, (start, end), request)
            for batch in _limited(Scan(consumer, ranges, Decoder(schema)), request.limit):
                table = _decoded(pa.Table.from_batches([batch]), request)
                yield from table.combine_chunks().to_batches()

    return batches()


def _choose(name: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {given!r}")


def _limited(batches: Scan, limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    if left == 0:
        return
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
            return


def _decoded(table: pa.Table, request: _Request) -> pa.Table:
    if request.key == "text" and "key" in table.column_names:
        table = decode_text(table, "key")
    if "value" not in table.column_names or request.value == "bytes":
        return table
    if request.value == "text":
        return decode_text(table, "value")
    return decode_json(table, None if isinstance(request.value, str) else request.value)


def _ranges(
    consumer: Consumer, topic: str, places: tuple[Places, Places], request: _Request
) -> list[PartitionRange]:
    known = consumer.run(describe_topic(consumer.cluster, topic))
    numbers = sorted(known.partitions) if request.partitions is None else request.partitions
    partitions = [TopicPartition(topic, number) for number in numbers]
    for partition in partitions:
        if partition.partition not in known.partitions:
            raise UnknownPartitionError(partition)
    if not partitions:
        return []
    latest = consumer.run(
        list_offsets(
            consumer.cluster, dict.fromkeys(partitions, LATEST), consumer.settings.isolation
        )
    )
    starts, ends = (
        consumer.run(resolve_offsets(consumer.cluster, _starts(place, partitions, default)))
        for place, default in zip(places, ("earliest", "latest"), strict=True)
    )
    return [
        PartitionRange(
            topic, tp.partition, starts[tp], min(ends[tp], latest[tp].offset), known.topic_id
        )
        for tp in partitions
    ]


def _starts(
    places: Places, partitions: list[TopicPartition], default: Place
) -> dict[TopicPartition, Start]:
    if not isinstance(places, Mapping):
        return dict.fromkeys(partitions, _start(places))
    unknown = sorted(set(places) - {tp.partition for tp in partitions})
    if unknown:
        raise ValueError(f"partition {unknown[0]} is not among those that are read")
    return {tp: _start(places.get(tp.partition, default)) for tp in partitions}


def _start(place: Place) -> Start:
    if isinstance(place, str):
        word = place.strip().lower()
        if word in ("earliest", "latest"):
            return Start("start" if word == "earliest" else "end")
        try:
            place = datetime.fromisoformat(place.strip())
        except ValueError:
            raise ValueError(
                f"{place!r} is no place in a topic: 'earliest', 'latest', an offset, a datetime, "
                "a timedelta, or a text like '2026-01-01T00:00Z'"
            ) from None
    if isinstance(place, timedelta):
        place = datetime.now().astimezone() - place
    if isinstance(place, datetime):
        return Start("time", int(place.timestamp() * 1000))
    if isinstance(place, bool) or not isinstance(place, int):
        raise TypeError(f"{place!r} is no place in a topic")
    return Start("tail", -place) if place < 0 else Start("offset", place)
