"""Brokers restarted one by one under load, each into a next version that does not exist."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from tests.e2e.test_cluster_cli import Shell
from tests.e2e.test_up_cluster import read
from tidelog.cluster import layout
from tidelog.testing import Cluster

# Patched into a broker as it starts: it reads and writes one version more.
_NEXT_VERSION = """
from tidelog.cluster import layout
layout._READ_VERSIONS = (*layout._READ_VERSIONS, layout.VALUE_VERSION + 1)
layout.VALUE_VERSION += 1
"""


class Load(threading.Thread):
    """Writes numbers for as long as it may, and keeps those that were acknowledged."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True,
             "linger.ms": 5, "delivery.timeout.ms": 60_000}
        )  # fmt: skip
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []
        self.sent = 0
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.005):
            self._producer.produce("orders", b"%d" % self.sent, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(0)
        self._producer.flush(60)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(message.value() or b"")

    def finish(self) -> None:
        self._is_over.set()
        self.join()


def test_brokers_are_upgraded_one_by_one_under_load_and_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_NEXT_VERSION)
    settings = {"zookeeper.session.timeout.ms": 6000}
    with Cluster(brokers=3, settings=settings) as cluster:
        servers = cluster.bootstrap_servers
        shell = Shell(servers)
        shell.run("topic", "create", "orders", "-p", "3")
        load = Load(servers)
        load.start()
        try:
            with monkeypatch.context() as patched:
                patched.setenv("PYTHONPATH", str(tmp_path))
                for broker in (2, 1, 0):
                    assert shell.json("cluster", "health", "--wait")["healthy"]
                    cluster.restart(broker)
                    shell.run("topic", "create", f"made-{broker}")
            assert shell.json("cluster", "health", "--wait")["healthy"]
        finally:
            load.finish()
        assert load.failed == [] and len(load.acknowledged) == load.sent > 100
        found = read(servers, "orders", 3, load.sent)
        assert found == set(load.acknowledged)
        # All three write the next version now: who does not read it may not come back.
        cluster.stop(2)
        with pytest.raises(Exception, match=f"version {layout.VALUE_VERSION + 1}"):
            cluster.restart(2)
