"""A full file system: writes are refused, reads go on, and it recovers by itself."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.produce_requests import batch, create_topic, fetch, offset_at, produce, values_in
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.storage.reserve import RESERVE_BYTES

COORDINATOR_NOT_AVAILABLE = 15
KAFKA_STORAGE_ERROR = 56
RESUME_SECONDS_MAX = 10.0
LATEST = -1
EARLIEST = -2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(mount_point)], check=True
    )
    yield mount_point
    subprocess.run(["umount", "-l", str(mount_point)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("low_water_bytes", ["-1", "0"], ids=["low water mark", "the very end"])
def test_a_full_disk_refuses_writes_serves_reads_and_recovers(
    small_disk: Path, low_water_bytes: str
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(16 << 20))
    settings = {"disk.min.free.bytes": low_water_bytes}
    broker = BrokerProcess(small_disk / "data", settings)
    broker.log_path = small_disk.parent / "broker.log"
    with broker, RawClient(broker.bootstrap_servers) as client:
        create_topic(client, "t", retention_ms="-1")
        acknowledged = 0
        refused = 0
        while refused < 5:
            records = batch([f"{acknowledged}".encode() + b"x" * 100_000])
            answer = client.call("Produce", 9, produce("t", records))
            answer = answer.responses[0].partition_responses[0]
            if answer.error_code == 0:
                assert answer.base_offset == acknowledged
                acknowledged += 1
                assert acknowledged < 640, "64 MiB were never full"
            else:
                assert answer.error_code == KAFKA_STORAGE_ERROR
                refused += 1
        assert acknowledged > 200
        assert read_numbers(client, acknowledged) == list(range(acknowledged))
        assert offset_at(client, "t", LATEST) == acknowledged

        ballast.unlink()
        request = produce("t", batch([f"{acknowledged}x".encode()]))

        def taken_again() -> bool:
            answer = client.call("Produce", 9, request).responses[0].partition_responses[0]
            return answer.error_code == 0 and answer.base_offset == acknowledged

        eventually(taken_again, seconds=RESUME_SECONDS_MAX)
        assert read_numbers(client, acknowledged + 1) == list(range(acknowledged + 1))
        broker.kill()
        broker.start()
        with RawClient(broker.bootstrap_servers) as again:
            assert read_numbers(again, acknowledged + 1) == list(range(acknowledged + 1))


def read_numbers(client: RawClient, count: int) -> list[int]:
    """The leading number of every record's value."""
    numbers: list[int] = []
    while len(numbers) < count:
        data = client.call("Fetch", 11, fetch("t", len(numbers))).responses[0].partitions[0]
        assert data.error_code == 0
        values = values_in(data)
        assert values
        numbers += [int((value or b"").partition(b"x")[0]) for value in values]
    return numbers


@pytest.mark.root
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_start_on_a_full_disk_serves_reads_and_trims(small_disk: Path, clean: bool) -> None:
    broker = BrokerProcess(small_disk / "data")
    broker.log_path = small_disk.parent / "broker.log"
    with broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t", retention_ms="-1", segment_bytes="1048576")
            for number in range(40):
                records = batch([f"{number}".encode() + b"x" * 100_000])
                assert not produced(client, records).error_code
        reserve = small_disk / "data" / "disk-reserve"
        eventually(lambda: reserve.exists() and reserve.stat().st_size == RESERVE_BYTES)
        if clean:
            assert broker.terminate() == 0
        else:
            broker.kill()
        fill_up(small_disk / "filler")
        broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            assert read_numbers(client, 40) == list(range(40))
            eventually(lambda: produced(client, batch([b"40x"])).error_code == KAFKA_STORAGE_ERROR)
            partition = DeleteRecordsPartition(partition_index=0, offset=30)
            trim = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=10_000
            )
            answer = client.call("DeleteRecords", 1, trim)
            assert answer.topics[0].partitions[0].error_code == 0
            assert offset_at(client, "t", EARLIEST) == 30
            (small_disk / "filler").unlink()
            eventually(lambda: not produced(client, batch([b"41x"])).error_code)


def test_a_start_on_a_low_disk_refuses_the_very_first_write(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"disk.min.free.bytes": str(10**15)}) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t")
            assert produced(client, batch([b"x"])).error_code == KAFKA_STORAGE_ERROR


@pytest.mark.root
def test_a_start_without_room_says_so_and_works_once_there_is_some(small_disk: Path) -> None:
    broker = BrokerProcess(small_disk / "data")
    broker.log_path = small_disk.parent / "broker.log"
    with broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t")
            assert not produced(client, batch([b"0x"])).error_code
        broker.kill()
        (small_disk / "data" / "disk-reserve").unlink(missing_ok=True)
        fill_up(small_disk / "filler")
        with pytest.raises(AssertionError, match="did not start") as failure:
            broker.start()
        assert "No space left" in str(failure.value) or "no space left" in str(failure.value)
        assert "restore" not in str(failure.value)
        (small_disk / "filler").unlink()
        broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            assert read_numbers(client, 1) == [0]


@pytest.mark.root
def test_commits_go_on_while_producers_wait_until_the_last_of_the_disk(small_disk: Path) -> None:
    settings = {"disk.min.free.bytes": str(24 << 20), "offsets.topic.num.partitions": "1"}
    broker = BrokerProcess(small_disk / "data", settings)
    broker.log_path = small_disk.parent / "broker.log"
    filler = small_disk / "filler"
    with broker, RawClient(broker.bootstrap_servers) as client:
        create_topic(client, "t")
        find = FindCoordinatorRequest(coordinator_keys=["g"])
        eventually(lambda: not client.call("FindCoordinator", 4, find).coordinators[0].error_code)
        eventually(lambda: committed(client) == 0)
        reserve = small_disk / "data" / "disk-reserve"
        eventually(lambda: reserve.exists() and reserve.stat().st_size == RESERVE_BYTES)
        leave_free(filler, 18 << 20)
        eventually(lambda: produced(client, batch([b"1x"])).error_code == KAFKA_STORAGE_ERROR)
        assert committed(client) == 0
        leave_free(filler, 10 << 20)
        eventually(lambda: committed(client) == COORDINATOR_NOT_AVAILABLE)
        leave_free(filler, 18 << 20)
        eventually(lambda: committed(client) == 0)
        assert produced(client, batch([b"2x"])).error_code == KAFKA_STORAGE_ERROR
        filler.unlink()
        eventually(lambda: produced(client, batch([b"3x"])).error_code == 0)


def leave_free(filler: Path, free_bytes: int) -> None:
    """Fill the disk up to that, without freeing more than that for a moment."""
    with filler.open("ab") as file:
        stat = os.statvfs(filler.parent)
        size = os.fstat(file.fileno()).st_size
        wanted = size + stat.f_bavail * stat.f_frsize - free_bytes
        if wanted < size:
            file.truncate(wanted)
        else:
            os.posix_fallocate(file.fileno(), 0, wanted)


def committed(client: RawClient) -> int:
    """The error code of a commit."""
    partition = OffsetCommitRequestPartition(0, 1, -1, "")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = client.call("OffsetCommit", 8, OffsetCommitRequest("g", topics=[topic]))
    return int(answer.topics[0].partitions[0].error_code)


def fill_up(path: Path) -> None:
    """Write until the disk has not a byte left."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(fd, bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC
    finally:
        os.close(fd)


def produced(client: RawClient, records: bytes) -> Any:
    answer = client.call("Produce", 9, produce("t", records))
    return answer.responses[0].partition_responses[0]
