"""Secrets in the settings of a broker are seen nowhere else, and its files are its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.e2e.broker_process import free_port
from tests.waiting import eventually
from tidelog.testing.certificates import Authority

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRETS = {
    name: f"canary-{name}-5ecret"
    for name in ("alice", "key", "page", "zookeeper", "store", "wrong", "altered")
}


class Canary:
    """A broker as a process, with a secret in every setting that takes one."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.log = directory / "log"
        self.port, self.page_port = free_port(), free_port()
        authority = Authority()
        self.authority = authority.write(directory / "ca.pem")
        key = authority.issue().write(directory / "broker.pem", password=SECRETS["key"])
        self._settings = {
            "listeners": f"SASL_SSL://127.0.0.1:{self.port}",
            "inter.broker.listener.name": "SASL_SSL",
            "log.dirs": str(self.data),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{MODULE} required user_alice="{SECRETS["alice"]}";'
            ),
            "ssl.keystore.location": key,
            "ssl.key.password": SECRETS["key"],
            "ssl.truststore.location": self.authority,
            "metrics.listener": f"127.0.0.1:{self.page_port}",
            "metrics.users": f"page:{SECRETS['page']}",
            "zookeeper.digest": f"user:{SECRETS['zookeeper']}",
            "zookeeper.ssl.keystore.password": SECRETS["store"],
        }
        self._file = directory / "broker.properties"
        self.process = self.start()

    def start(self, **changes: str) -> subprocess.Popen[bytes]:
        settings = self._settings | {name.replace("_", "."): each for name, each in changes.items()}
        self._file.touch(mode=0o600)
        self._file.write_text("".join(f"{name}={each}\n" for name, each in settings.items()))
        program = Path(__file__).with_name("canary_broker.py")
        command = [sys.executable, str(program), "broker", "--config", str(self._file)]
        with self.log.open("ab") as log:
            # Whatever the broker creates, it has to keep from others itself.
            return subprocess.Popen(
                [*command, "--log-level", "debug"], stdout=log, stderr=log, umask=0
            )

    def admin(self, password: str) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{self.port}",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": password,
                "ssl.ca.location": self.authority,
                "log_level": 0,
            }
        )

    def page(self, password: str) -> str:
        connection = HTTPConnection("127.0.0.1", self.page_port, timeout=10)
        token = b64encode(f"page:{password}".encode()).decode()
        connection.request("GET", "/metrics", headers={"Authorization": f"Basic {token}"})
        text = connection.getresponse().read().decode()
        connection.close()
        return text


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    canary = Canary(tmp_path)
    try:
        eventually(
            lambda: b"started node_id" in canary.log.read_bytes(), canary.log.read_text, 30.0
        )
        yield canary
    finally:
        if canary.process.poll() is None:
            canary.process.kill()
        canary.process.wait()


def round_of_requests(canary: Canary) -> str:
    """What a client sees of a broker that it asks for everything."""
    seen: list[Any] = []
    admin = canary.admin(SECRETS["alice"])
    for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
        future.result(20)
    resource = ConfigResource(ResourceType.BROKER, "0")
    for future in admin.describe_configs([resource]).values():
        entries = future.result(20)
        hidden = [entry.name for entry in entries.values() if entry.is_sensitive]
        assert {"ssl.key.password", "metrics.users", "zookeeper.digest"} <= set(hidden)
        assert all(entries[name].value is None for name in hidden)
        seen += [(entry.name, entry.value, entry.synonyms) for entry in entries.values()]
    change = ConfigEntry(
        "ssl.truststore.password",
        SECRETS["altered"],
        incremental_operation=AlterConfigOpType.SET,
    )
    altered = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[change])
    for future in admin.incremental_alter_configs([altered]).values():
        with suppress(KafkaException):
            seen.append(future.result(20))
    with suppress(KafkaException):
        seen.append(admin.list_consumer_groups(request_timeout=1).result(20))
    with pytest.raises(KafkaException):
        canary.admin(SECRETS["wrong"]).list_topics(timeout=1)
    seen += [canary.page(SECRETS["page"]), canary.page(SECRETS["wrong"])]
    return repr(seen)


def test_no_secret_is_seen_anywhere_and_all_files_are_for_the_user_of_the_broker_alone(
    canary: Canary, tmp_path: Path
) -> None:
    seen = {"answers": round_of_requests(canary).encode()}
    process = Path("/proc", str(canary.process.pid))
    for name in ("cmdline", "environ"):
        seen[name] = (process / name).read_bytes()
    paths = [canary.data, *canary.data.rglob("*")]
    assert [str(path) for path in paths if path.lstat().st_mode & 0o077] == []
    canary.process.send_signal(signal.SIGTERM)
    assert canary.process.wait(30) == 0
    lines = [
        json.loads(line)
        for path in (canary.data / "audit").iterdir()
        for line in path.read_text().splitlines()
    ]
    logins = {(each["outcome"], each["listener"]) for each in lines if "Login" in each["action"]}
    assert logins == {(each, name) for each in ("ok", "failed") for name in ("SASL_SSL", "metrics")}
    said = canary.log.read_bytes()
    assert b"CRASH" in said and b"Traceback" in said and b"inner" in said
    for bad in (
        {"metrics_users": SECRETS["wrong"]},
        {"ssl_key_password": SECRETS["wrong"]},
    ):
        assert canary.start(**bad).wait(30) != 0
    seen["log"] = canary.log.read_bytes()
    for path in canary.data.rglob("*"):
        if path.is_file():
            seen[str(path.relative_to(tmp_path))] = path.read_bytes()
    leaks = {
        (name, where)
        for name, secret in SECRETS.items()
        for where, data in seen.items()
        if secret.encode() in data or b64encode(secret.encode()) in data
    }
    # What is altered over the wire has to be kept, where only the broker reads.
    assert leaks <= {("altered", "data/metadata.db"), ("altered", "data/metadata.db-wal")}
    assert len(seen) > 15 and sum(map(len, seen.values())) > 50_000
