"""Arrow rows through the writer into a real broker."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from tidelog.arrow import writer as module
from tidelog.arrow.encode import RowError
from tidelog.arrow.writer import ArrowWriter, RecordTooLargeError, WriterSettings
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.blocking import Client
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.offsets import Start
from tidelog.client.settings import ClientSettings, ProducerSettings
from tidelog.errors import KafkaError
from tidelog.model import Codec, TopicPartition
from tidelog.protocol.batches import Record
from tidelog.testing import Broker


def settings(broker: Broker, topic: str | None, **producer: object) -> WriterSettings:
    return WriterSettings(broker.bootstrap_servers, topic, None, ProducerSettings(**producer))  # type: ignore[arg-type]


def create(broker: Broker, name: str, partitions: int, configs: Mapping[str, str] = {}) -> None:
    with Client(broker.bootstrap_servers) as client:
        client.run(create_topic(client.cluster, NewTopic(name, partitions, configs=dict(configs))))


def stored(broker: Broker, topic: str, partitions: int, count: int) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {number: [] for number in range(partitions)}
    with Consumer(broker.bootstrap_servers) as consumer:
        starts = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(dict.fromkeys(starts, Start("start")))
        while sum(map(len, found.values())) < count:
            for partition, records in consumer.poll(10.0):
                found[partition.partition] += records
    assert sum(map(len, found.values())) == count
    return found


@pytest.mark.parametrize("codec", list(Codec))
def test_rows_are_stored_once_and_in_order_with_every_codec(
    tidelog_broker: Broker, codec: Codec
) -> None:
    topic = f"arrow-{codec.name.lower()}"
    create(tidelog_broker, topic, 3)
    values = [b"%06d" % number for number in range(3000)]
    batches = [
        pa.record_batch(
            {
                "value": pa.array(values[start : start + 500]),
                "partition": pa.array([n % 3 for n in range(500)], pa.int32()),
            }
        )
        for start in range(0, 3000, 500)
    ]
    with ArrowWriter(settings(tidelog_broker, topic, codec=codec, batch_bytes=2000)) as writer:
        for batch in batches:
            writer.write(batch)
        written = writer.finish()
    found = stored(tidelog_broker, topic, 3, 3000)
    assert written == {TopicPartition(topic, n): len(found[n]) for n in range(3)}
    for records in found.values():
        assert [record.value for record in records] == sorted(r.value or b"" for r in records)


def test_the_topic_column_sends_each_row_to_its_topic(tidelog_broker: Broker) -> None:
    topics = ["arrow-a", "arrow-b", "arrow-a", "arrow-c", "arrow-a"]
    batch = pa.record_batch(
        {"topic": pa.array(topics), "value": pa.array([b"0", b"1", b"2", b"3", b"4"])}
    )
    with ArrowWriter(settings(tidelog_broker, None)) as writer:
        writer.write(batch)
        written = writer.finish()
    assert written == {("arrow-a", 0): 3, ("arrow-b", 0): 1, ("arrow-c", 0): 1}
    values = [record.value for record in stored(tidelog_broker, "arrow-a", 1, 3)[0]]
    assert values == [b"0", b"2", b"4"]


def test_a_row_without_a_topic_is_refused(tidelog_broker: Broker) -> None:
    values = pa.array([b"x", b"y"])
    with ArrowWriter(settings(tidelog_broker, None)) as writer:
        with pytest.raises(RowError, match="'topic' holds a null"):
            writer.write(pa.record_batch({"topic": pa.array(["a", None]), "value": values}))
        with pytest.raises(RowError, match="no column 'topic'"):
            writer.write(pa.record_batch({"value": values}))


def test_batches_too_large_for_the_topic_are_split_and_then_made_smaller(
    tidelog_broker: Broker,
) -> None:
    create(tidelog_broker, "arrow-small", 1, {"max.message.bytes": "3000"})
    batch = pa.record_batch({"value": pa.array([b"%0100d" % number for number in range(500)])})
    with ArrowWriter(settings(tidelog_broker, "arrow-small", batch_bytes=20_000)) as writer:
        writer.write(batch)
        writer.finish()
        writer.write(batch)
        writer.finish()
        assert writer._producer.core.refused_bytes["arrow-small"] > 3000
    records = stored(tidelog_broker, "arrow-small", 1, 1000)[0]
    assert [record.value for record in records] == batch["value"].to_pylist() * 2


def test_a_row_that_the_broker_refuses_is_told_with_its_size_and_the_settings(
    tidelog_broker: Broker,
) -> None:
    create(tidelog_broker, "arrow-limit", 1, {"max.message.bytes": "3000"})
    batch = pa.record_batch({"value": pa.array([b"x" * 5000])})
    complaint = (
        r"topic 'arrow-limit' partition 0: .* a row of 50\d\d bytes; raise max.message.bytes"
    )
    with ArrowWriter(settings(tidelog_broker, "arrow-limit")) as writer:
        writer.write(batch)
        with pytest.raises(RecordTooLargeError, match=complaint):
            writer.finish()
    limited = settings(tidelog_broker, "arrow-limit", batch_bytes=1000)
    limited.record_bytes_max = 4000
    with ArrowWriter(limited) as writer:
        with pytest.raises(RecordTooLargeError, match=r"larger than max\.request\.size=4000"):
            writer.write(batch)


def test_columns_of_more_than_32_bits_are_written_in_parts(
    tidelog_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COLUMN_BYTES_MAX", 1000)
    values = [b"%050d" % number for number in range(300)]
    create(tidelog_broker, "arrow-parts", 1)
    with ArrowWriter(settings(tidelog_broker, "arrow-parts")) as writer:
        writer.write(pa.record_batch({"value": pa.array(values)}))
        writer.finish()
    assert [r.value for r in stored(tidelog_broker, "arrow-parts", 1, 300)[0]] == values


def test_open_batches_of_many_topics_and_partitions_stay_within_the_buffer(
    tidelog_broker: Broker,
) -> None:
    create(tidelog_broker, "arrow-wide", 60)
    topics = [f"arrow-many-{number}" for number in range(20)]
    keys = pa.array([b"%d" % number for number in range(400)])
    limited = settings(tidelog_broker, None, batch_bytes=64 << 10, buffer_bytes=1 << 20)
    with ArrowWriter(limited) as writer:
        for columns in (
            {"topic": pa.array(["arrow-wide"] * 400), "key": keys, "value": keys},
            {"topic": pa.array(topics * 20), "value": keys},
        ):
            writer.write(pa.record_batch(columns))
            assert sum(each.open_bytes for each in writer._encoders.values()) <= 1 << 20
        written = writer.finish()
    assert sum(written.values()) == 800
    assert len({partition for partition in written if partition.topic == "arrow-wide"}) > 50


def test_a_topic_that_is_not_there_and_not_created_fails_the_write() -> None:
    quick = ClientSettings(operation_timeout_ms=300)
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        with ArrowWriter(settings(broker, "nowhere", client=quick)) as writer:
            with pytest.raises(KafkaError, match="topic 'nowhere'"):
                writer.write(pa.record_batch({"value": pa.array([b"x"])}))
