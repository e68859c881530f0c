"""Arrow rows to topics: Spark's sink without Spark.

One writer is one producer: with idempotence (the default) its batches are stored in order and
once, however often they are sent again. It knows nothing of what another writer has sent, so who
starts over after a failure writes again what was stored before: at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.arrow.encode import RowError, TopicEncoder, rows_of
from tidelog.client.batching import Batch, EncodedRecords
from tidelog.client.blocking_producer import Producer
from tidelog.client.operation import topic_metadata
from tidelog.client.settings import ProducerSettings
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.host.random import SystemRandom
from tidelog.model import TopicPartition

# Rows whose bytes would overflow 32-bit offsets are written in parts.
_COLUMN_BYTES_MAX = 1 << 30
_BATCH_BYTES_MIN = 16 << 10


@dataclass(slots=True)
class WriterSettings:
    """Where rows go and how; `topic` wins over a column of that name."""

    servers: str
    topic: str | None = None
    record_bytes_max: int | None = None
    producer: ProducerSettings = field(default_factory=ProducerSettings)


OpenProducer = Callable[[str, ProducerSettings, Callable[[list[Batch]], None]], Producer]


class RecordTooLargeError(TidelogError):
    """A row that is larger than what the writer or the broker takes."""


class ArrowWriter:
    """Writes record batches; `finish` returns when all is acknowledged.

    With `open_producer` by another producer than a plain one, which its opener looks after.

    >>> with ArrowWriter(WriterSettings("127.0.0.1:9092", "orders")) as writer:  # doctest: +SKIP
    ...     writer.write(pa.record_batch({"key": [b"k"], "value": [b"v"]}))
    ...     writer.finish()
    {('orders', 0): 1}
    """

    def __init__(self, settings: WriterSettings, open_producer: OpenProducer = Producer) -> None:
        self._settings = settings
        self._random = SystemRandom()
        self._producer = open_producer(settings.servers, settings.producer, self._completed)
        self._encoders: dict[str, TopicEncoder] = {}
        self._queued = 0
        self._written: dict[TopicPartition, int] = {}
        self._error: TidelogError | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Queue the rows; blocks while the buffer is full and raises what failed meanwhile."""
        if batch.num_rows > 1 and batch.nbytes > _COLUMN_BYTES_MAX:
            half = batch.num_rows // 2
            self.write(batch.slice(0, half))
            self.write(batch.slice(half))
            return
        for topic, rows in self._by_topic(batch):
            self._queued += rows.num_rows
            self._write_topic(topic, rows)
        open_bytes = sum(encoder.open_bytes for encoder in self._encoders.values())
        if open_bytes > self._producer.settings.buffer_bytes:
            self._send_open()

    def finish(self) -> dict[TopicPartition, int]:
        """Send what is left and wait for every acknowledgement; the records of each partition."""
        self._send_open()
        self._producer.flush()
        self._raise()
        assert sum(self._written.values()) == self._queued, "every row is acknowledged once"
        return dict(self._written)

    def close(self) -> None:
        """Drop what is not sent, and every connection."""
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if batch.num_rows == 0:
            return
        if self._settings.topic is not None:
            yield self._settings.topic, batch
            return
        index = batch.schema.get_field_index("topic")
        if index < 0:
            raise RowError("no topic is set and there is no column 'topic'")
        column = batch.column(index)
        if column.null_count:
            raise RowError("column 'topic' holds a null, and no topic is set")
        encoded = column.dictionary_encode()
        topics = encoded.dictionary.to_pylist()
        for number, topic in enumerate(topics):
            only = batch if len(topics) == 1 else batch.filter(pc.equal(encoded.indices, number))
            yield topic, only

    def _write_topic(self, topic: str, batch: pa.RecordBatch) -> None:
        producer = self._producer
        known = self._topic(topic)
        encoder = self._encoders.get(topic)
        batch_bytes = self._batch_bytes(topic, len(known))
        if encoder is None:
            encoder = TopicEncoder(len(known), batch_bytes, self._random)
            self._encoders[topic] = encoder
        encoder.batch_bytes = batch_bytes
        available = [number for number, leader in known.items() if leader >= 0]
        rows = rows_of(batch, producer.cluster.clock.wall_ms())
        for number, payload in encoder.add(rows, available or list(known)):
            self._send(TopicPartition(topic, number), payload)

    def _topic(self, topic: str) -> dict[int, int]:
        """The leaders of a topic's partitions."""
        producer = self._producer
        if not producer.core.ready_for(topic):
            create = producer.settings.auto_create_topics
            producer.run(topic_metadata(producer.cluster, [topic], create=create))
        partitions = producer.cluster.topics[topic].partitions
        return {number: state.leader for number, state in partitions.items()}

    def _batch_bytes(self, topic: str, partition_count: int) -> int:
        """Smaller where a batch for each partition would not fit in the buffer."""
        settings = self._producer.settings
        share = max(settings.buffer_bytes // partition_count, _BATCH_BYTES_MIN)
        batch_bytes = min(settings.batch_bytes, share)
        refused = self._producer.core.refused_bytes.get(topic)
        # Half of what the topic has refused, so that the next batches need no splitting.
        return batch_bytes if refused is None else min(batch_bytes, refused // 2)

    def _send_open(self) -> None:
        for topic, encoder in self._encoders.items():
            for number, payload in encoder.finish():
                self._send(TopicPartition(topic, number), payload)

    def _send(self, partition: TopicPartition, payload: EncodedRecords) -> None:
        limit = self._settings.record_bytes_max
        if limit is not None and payload.record_count == 1 and payload.size_bytes > limit:
            raise RecordTooLargeError(
                f"topic '{partition.topic}' partition {partition.partition}: a row of"
                f" {payload.size_bytes} bytes is larger than max.request.size={limit};"
                " raise that, and max.message.bytes of the topic where it is smaller"
            )
        self._producer.send_encoded(partition, payload)
        self._raise()

    def _completed(self, batches: list[Batch]) -> None:
        for batch in batches:
            if batch.error is None:
                count = self._written.get(batch.partition, 0)
                self._written[batch.partition] = count + batch.record_count
            elif self._error is None:
                self._error = _explained(batch)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def _explained(batch: Batch) -> TidelogError:
    """The error of a batch, with what to do about a row that the broker finds too large."""
    assert batch.error is not None
    too_large = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
    if isinstance(batch.error, KafkaError) and batch.error.code in too_large:
        return RecordTooLargeError(
            f"topic '{batch.partition.topic}' partition {batch.partition.partition}: the broker"
            f" refused a row of {batch.size_bytes} bytes; raise max.message.bytes of the topic,"
            " or message.max.bytes of the broker"
        )
    return batch.error
