"""A disk that fails under a partition: shown by the pages, the metadata and the doctor."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.e2e.produce_requests import batch, create_topic, produce
from tests.e2e.raw_client import RawClient
from tests.e2e.test_connections import get
from tests.waiting import eventually
from tidelog.cli import doctor_network
from tidelog.cli.finding import Finding
from tidelog.host.disk import Buffer, SystemDisk
from tidelog.testing import Broker

KAFKA_STORAGE_ERROR = 56


def produce_code(client: RawClient, topic: str) -> int:
    answer = client.call("Produce", 9, produce(topic, batch([b"x"])))
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def test_offline_partitions_are_shown_by_pages_metadata_and_doctor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing: set[str] = set()

    def pwritev(self: SystemDisk, fd: int, parts: list[Buffer], position: int) -> int:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if any(f"/{name}/" in path for name in failing):
            raise OSError(errno.EIO, "Input/output error")
        return os.pwritev(fd, parts, position)

    monkeypatch.setattr(SystemDisk, "pwritev", pwritev)
    with Broker(settings={"metrics.listener": "127.0.0.1:0"}) as broker:
        port = broker.metrics_port
        assert port is not None
        with RawClient(broker.bootstrap_servers) as client:
            for topic in "good", "bad":
                create_topic(client, topic)
                assert produce_code(client, topic) == 0
            assert doctor(broker).ok
            failing.add("bad-0")
            assert produce_code(client, "bad") == KAFKA_STORAGE_ERROR
            assert produce_code(client, "good") == 0
            status, text = get(port, "/readyz")
            assert (status, text.splitlines()[0]) == (200, "ready, 1 of 2 partitions offline")
            assert text.splitlines()[1].startswith("offline bad-0: ")
            lines = get(port, "/metrics")[1].splitlines()
            assert "tidelog_offline_partitions 1" in lines
            assert 'tidelog_partition_offline{topic="bad",partition="0"} 1' in lines
            eventually(lambda: not doctor(broker).ok)
            assert "1 of 2 partitions are offline: bad-0." in doctor(broker).sentence
            failing.add("good-0")
            assert produce_code(client, "good") == KAFKA_STORAGE_ERROR
            status, text = get(port, "/readyz")
            assert (status, text.splitlines()[0]) == (503, "every partition is offline")
        failing.clear()


def doctor(broker: Broker) -> Finding:
    """What the doctor finds about partitions."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    findings = doctor_network.examine((host, int(port)), 10.0)
    return next(finding for finding in findings if finding.name == "partitions")


def test_a_checkpoint_that_fails_is_one_line_and_another_when_it_works_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    broken = True
    rename = os.replace

    def refused(source: str, target: str) -> None:
        if "-checkpoint" in target:
            tries.append(target)
            if broken:
                raise OSError(errno.EROFS, "Read-only file system")
        rename(source, target)

    monkeypatch.setattr(SystemDisk, "rename", staticmethod(refused))
    settings = {"log.flush.offset.checkpoint.interval.ms": "20"}
    with Broker(data_dir=str(tmp_path), settings=settings):
        eventually(lambda: len(tries) >= 4)
        assert told(caplog) == ["checkpoint failed, will be tried again"]
        broken = False
        eventually(lambda: len(told(caplog)) == 2)
    assert told(caplog)[1] == "checkpoint written again"
    assert not any(record.exc_info for record in caplog.records)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage().partition(" reason=")[0] for record in caplog.records]
    return [text for text in texts if text.startswith("checkpoint ")]
