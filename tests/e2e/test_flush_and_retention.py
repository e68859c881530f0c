"""When records become visible and durable, and when they go."""

from __future__ import annotations

import time
from pathlib import Path

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.produce_requests import batch, create_topic, fetch, offset_at, produce, values_in
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

EARLIEST, LATEST = -2, -1


def test_with_fsync_and_flush_messages_nothing_shows_before_the_thousandth(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"flusher.interval.ms": "10"}) as broker:
        with (
            RawClient(broker.bootstrap_servers) as producer,
            RawClient(broker.bootstrap_servers) as consumer,
        ):
            create_topic(producer, "t", durability="fsync", flush_messages="1000")
            for number in range(999):
                records = batch([str(number).encode()])
                producer.send("Produce", 9, produce("t", records, acks=1, timeout_ms=60_000))
            expected = sum(len(batch([str(number).encode()])) for number in range(999))
            eventually(lambda: log_bytes(broker, "t-0") == expected, seconds=30)
            assert offset_at(consumer, "t", LATEST) == 0
            data = (
                consumer.call("Fetch", 11, fetch("t", max_wait_ms=200)).responses[0].partitions[0]
            )
            assert data.high_watermark == 0
            assert values_in(data) == []
            producer.send("Produce", 9, produce("t", batch([b"999"]), acks=1))
            for number in range(1_000):
                answer = producer.receive()[1].responses[0].partition_responses[0]
                assert (answer.error_code, answer.base_offset) == (0, number)
            data = consumer.call("Fetch", 11, fetch("t")).responses[0].partitions[0]
            assert values_in(data) == [str(number).encode() for number in range(1_000)]


def log_bytes(broker: BrokerProcess, partition: str) -> int:
    return sum(path.stat().st_size for path in (broker.data_dir / partition).glob("*.log"))


def test_flush_ms_shows_what_waits_after_that_time(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"flusher.interval.ms": "10"}) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t", durability="fsync", flush_ms="300")
            answer = client.call("Produce", 9, produce("t", batch([b"x"]), acks=-1))
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert offset_at(client, "t", LATEST) == 1


def test_retention_moves_the_start_past_data_that_nobody_has_read(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "500"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(
                client, "t", retention_ms="5000", message_timestamp_type="LogAppendTime",
                file_delete_delay_ms="0",
            )  # fmt: skip
            for _ in range(10):
                client.call("Produce", 9, produce("t", batch([b"x" * 100])))
            produced_at = time.monotonic()
            assert offset_at(client, "t", EARLIEST) == 0
            eventually(lambda: offset_at(client, "t", EARLIEST) == 10, seconds=15)
            assert time.monotonic() - produced_at >= 4.5, "kept for as long as it was promised"
            answer = client.call("Produce", 9, produce("t", batch([b"after"])))
            assert answer.responses[0].partition_responses[0].base_offset == 10
            eventually(lambda: not list(broker.data_dir.glob("t-0/*.deleted")), seconds=10)


def test_retention_by_size_keeps_the_newest(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "200"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(
                client, "t", retention_bytes="3000000", retention_ms="-1", segment_bytes="1048576"
            )
            for _ in range(100):
                client.call("Produce", 9, produce("t", batch([b"x" * 100_000])))
            eventually(lambda: offset_at(client, "t", EARLIEST) > 0, seconds=15)
            start = offset_at(client, "t", EARLIEST)
            data = client.call("Fetch", 11, fetch("t", start)).responses[0].partitions[0]
            assert len(values_in(data)) == 100 - start
            assert log_bytes(broker, "t-0") >= 3_000_000


def test_deleted_records_stay_deleted_after_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t")
            for _ in range(10):
                client.call("Produce", 9, produce("t", batch([b"x"])))
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 7)])], timeout_ms=1000
            )
            result = client.call("DeleteRecords", 2, request).topics[0].partitions[0]
            assert (result.error_code, result.low_watermark) == (0, 7)
        broker.kill()
        broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            assert offset_at(client, "t", EARLIEST) == 7
            data = client.call("Fetch", 11, fetch("t", 3)).responses[0].partitions[0]
            assert data.error_code == 1, "OFFSET_OUT_OF_RANGE"
