"""An open cluster gets TLS, log-ins and access control, broker by broker, under load.

The steps are those of docs/security.md. A producer and a consumer never stop: every acknowledged
record arrives, in order, once.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.broker_process import free_port
from tests.waiting import eventually
from tidelog.testing import Broker
from tidelog.testing.certificates import Authority
from tidelog.testing.zookeeper import ZooKeeper

pytestmark = [pytest.mark.long, pytest.mark.spark]

BOTH = "PLAINTEXT://127.0.0.1:{open},SASL_SSL://127.0.0.1:{closed}"
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret"}


class Cluster:
    """Three brokers around ZooKeeper, each of which can be started again with other settings."""

    def __init__(self, directory: Path, store: str, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self.ports = [{"open": free_port(), "closed": free_port()} for _ in range(3)]
        authority = Authority()
        self.authority = authority.write(directory / "ca.pem")
        self._brokers: dict[int, Broker] = {}
        self.has_topic = False
        self._settings = {
            "store": store,
            "zookeeper.digest": "tidelog:digest-secret",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "ssl.truststore.location": self.authority,
            "ssl.keystore.location": authority.issue().write(directory / "broker.pem"),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        }

    def servers(self, which: str) -> str:
        return ",".join(f"127.0.0.1:{each[which]}" for each in self.ports)

    def roll(self, listeners: str, **changes: str) -> None:
        """Start every broker again with these settings, one after the other."""
        for number, ports in enumerate(self.ports):
            if number in self._brokers:
                self._brokers[number].stop()
            settings = {
                **self._settings,
                "node.id": str(number),
                "listeners": listeners.format(**ports),
                **{name.replace("_", "."): value for name, value in changes.items()},
            }
            broker = Broker(data_dir=self._directory / str(number), settings=settings)
            self._brokers[number] = self._stack.enter_context(broker)
            self._await_all_in_sync()

    def _await_all_in_sync(self) -> None:
        for which in ("open", "closed"):
            admin = AdminClient(self.client(which))

            def is_well(admin: AdminClient = admin) -> bool:
                try:
                    found = admin.list_topics("t", timeout=5).topics["t"].partitions.values()
                except KafkaException:
                    return False
                return all(len(each.isrs) == 3 for each in found)

            if self.has_topic and self.is_reachable(which):
                eventually(is_well, lambda: "not in sync again", 60)
                return

    def is_reachable(self, which: str) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.ports[0][which]), 1).close()
        except OSError:
            return False
        return True

    def client(self, which: str, user: str = "admin") -> dict[str, Any]:
        settings = {"bootstrap.servers": self.servers(which), "log_level": 0}
        if which == "open":
            return settings
        return settings | {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def tidelog(self, *arguments: str, user: str = "", password: str = "") -> None:
        """Run a command as the page shows it."""
        profile = self._directory / "client.properties"
        profile.touch(mode=0o600)
        lines = [f"bootstrap.servers={self.servers('closed' if user else 'open')}"]
        if user:
            lines += [
                "security.protocol=SASL_SSL",
                f"ssl.truststore.location={self.authority}",
                "sasl.mechanism=SCRAM-SHA-512",
                f"sasl.username={user}",
                f"sasl.password={PASSWORDS[user]}",
            ]
        profile.write_text("\n".join(lines))
        command = [sys.executable, "-m", "tidelog", *arguments, "--config", str(profile)]
        environment = {**os.environ, "SECRET": password}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


class Load:
    """Produces numbers until it is told to move or to stop; each acknowledged one counts."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.acknowledged: list[int] = []
        self._failed: list[object] = []
        self._settings = settings
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def move(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error)

    def _run(self) -> None:
        number, current = 0, None
        while not self._stopping.is_set():
            if current is not self._settings:
                current = self._settings
                producer = Producer({**current, "enable.idempotence": True, "linger.ms": 0})
            self._failed.clear()
            producer.produce("t", str(number).encode(), on_delivery=self._delivered)
            assert producer.flush(60) == 0 and not self._failed, self._failed
            self.acknowledged.append(number)
            number += 1


def read_all(settings: dict[str, Any], count: int) -> Iterator[int]:
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    for _ in range(count):
        message = None
        while message is None or message.error():
            message = consumer.poll(30)
            assert message is not None, "no more records"
        yield int(message.value() or b"-1")
    consumer.close()


def test_an_open_cluster_is_secured_while_clients_go_on(tmp_path: Path) -> None:
    with ZooKeeper() as ensemble, ExitStack() as stack:
        cluster = Cluster(tmp_path, ensemble.address, stack)
        cluster.roll("PLAINTEXT://127.0.0.1:{open}")
        admin = AdminClient(cluster.client("open"))
        for future in admin.create_topics([NewTopic("t", 1, 3)]).values():
            future.result(30)
        cluster.has_topic = True
        load = Load(cluster.client("open"))
        stack.callback(load.stop)
        # 1: a second listener beside the first.
        cluster.roll(BOTH)
        # 2: users, and rules for those that have moved; who has not may do everything still.
        for user, password in PASSWORDS.items():
            cluster.tidelog("user", "create", user, "--password-env", "SECRET", password=password)
        everybody = "User:admin;User:ANONYMOUS"
        cluster.roll(BOTH, authorizer_class_name="acl", super_users=everybody)
        cluster.tidelog(
            "acl", "add", "--allow", "alice", "--producer", "--consumer", "--topic", "t",
            "--group", "g", user="admin",
        )  # fmt: skip
        # 3: clients move.
        before = len(load.acknowledged)
        load.move(cluster.client("closed", "alice"))
        eventually(lambda: len(load.acknowledged) > before + 20, lambda: "nobody produces", 60)
        # 4: brokers speak with each other on the second, and then the first is closed.
        secured = {"authorizer_class_name": "acl", "security_inter_broker_protocol": "SASL_SSL"}
        cluster.roll(BOTH, super_users=everybody, **secured)
        cluster.roll("SASL_SSL://127.0.0.1:{closed}", super_users="User:admin", **secured)
        after = len(load.acknowledged)
        eventually(lambda: len(load.acknowledged) > after + 20, lambda: "nobody produces", 60)
        load.stop()
        assert not cluster.is_reachable("open")
        read = list(read_all(cluster.client("closed", "alice"), len(load.acknowledged)))
        assert read == load.acknowledged and len(read) > 100
        print(f"{len(read)} records over 5 rolls of 3 brokers, none lost, none twice")
