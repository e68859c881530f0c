"""DeleteRecords: what is deleted stays deleted, however many ask at once."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.produce_requests import batch, create_topic, offset_at, produce
from tests.e2e.raw_client import RawClient
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

CONNECTIONS = 4
DELETES = 100
EARLIEST = -2


def delete_before(client: RawClient, partition: int, offset: int) -> None:
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic("t", [DeleteRecordsPartition(partition, offset)])],
        timeout_ms=10_000,
    )
    result = client.call("DeleteRecords", 2, request).topics[0].partitions[0]
    assert (result.error_code, result.low_watermark) == (0, offset)


def test_checkpoints_asked_for_at_once_do_not_overwrite_each_other(tmp_path: Path) -> None:
    """They shared one temporary file: connections were closed, and older offsets were written."""
    settings = {"replica.high.watermark.checkpoint.interval.ms": "1"}
    broker = BrokerProcess(tmp_path / "data", settings)
    done: list[int] = []

    def delete_one_by_one(partition: int) -> None:
        with RawClient(broker.bootstrap_servers) as client:
            for offset in range(1, DELETES + 1):
                delete_before(client, partition, offset)
            done.append(partition)

    with broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t", partitions=CONNECTIONS)
            for partition in range(CONNECTIONS):
                records = batch([b"x"] * (DELETES + 1))
                client.call("Produce", 9, produce("t", records, partition=partition))
        threads = [
            threading.Thread(target=delete_one_by_one, args=(each,)) for each in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        broker.kill()
        assert sorted(done) == list(range(CONNECTIONS))
        broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            starts = [offset_at(client, "t", EARLIEST, each) for each in range(CONNECTIONS)]
    assert starts == [DELETES] * CONNECTIONS
