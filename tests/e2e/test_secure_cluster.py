"""Brokers that speak TLS with each other and with clients, while certificates are replaced."""

from __future__ import annotations

import asyncio
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.raw_client import RawClient
from tests.e2e.test_secure_listeners import USERS, round_trip
from tests.waiting import eventually
from tidelog.errors import ErrorCode
from tidelog.model import ConfigResourceType
from tidelog.protocol.messages.fetch import FetchRequest, ReplicaState
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.security.tls import TlsSettings, client_context
from tidelog.server.broker import Broker as ServerBroker
from tidelog.testing import Cluster, VirtualClock
from tidelog.testing.certificates import Authority

BROKERS = 3


class Secured:
    """Three brokers, whose one listener is for clients and for themselves."""

    def __init__(self, directory: Path, **changes: str) -> None:
        self.directory = directory
        self.authority = Authority()
        self.key_file = directory / "broker.pem"
        self.authority.issue("CN=broker,O=before").write(self.key_file)
        self.authority.write(directory / "ca.pem")
        settings = {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL",
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.keystore.location": str(self.key_file),
            "ssl.truststore.location": str(directory / "ca.pem"),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS,
            **changes,
        }
        self.cluster = Cluster(BROKERS, settings=settings, clock=VirtualClock())

    @property
    def servers(self) -> list[ServerBroker]:
        threaded = self.cluster._threaded
        assert threaded is not None
        return [threaded._brokers[each] for each in range(BROKERS)]

    def client(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "s3cret",
            "ssl.ca.location": str(self.directory / "ca.pem"),
            "log_level": 0,
        }

    def is_in_sync(self) -> bool:
        """Whether every broker is in sync with every partition, as all of them see it."""
        return all(
            len(partition.isr) == BROKERS
            for server in self.servers
            for topic in server.parts.metadata.image.topics.values()
            for partition in topic.partitions
        )

    def shown_certificate(self, address: str) -> str:
        """The organization in the certificate that a new connection is shown."""
        host, _, port = address.rpartition(":")
        context = ssl.create_default_context(cadata=self.authority.pem)

        async def look() -> str:
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
            shown = writer.get_extra_info("peercert")
            writer.transport.abort()
            return dict(part[0] for part in shown["subject"])["organizationName"]

        return asyncio.run(look())


class Load:
    """A producer in the background; counts what is acknowledged, and what is not."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.acknowledged = 0
        self.failed: list[object] = []
        self._producer = Producer(settings)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        assert self._producer.flush(20) == 0

    def goes_on(self, count: int = 50) -> None:
        target = self.acknowledged + count
        eventually(lambda: self.acknowledged >= target)

    def _run(self) -> None:
        while not self._done.wait(0.001):
            self._producer.produce("rotated", b"x" * 500, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        self.acknowledged += 1
        if error is not None:
            self.failed.append(error)


def test_x4_brokers_and_clients_speak_tls_while_certificates_are_replaced(tmp_path: Path) -> None:
    secured = Secured(tmp_path, **{"listener.name.sasl_ssl.ssl.client.auth": "requested"})
    with secured.cluster:
        round_trip(secured.client() | {"acks": "all"}, "secured")
        for server in secured.servers:
            partition = server.parts.metadata.image.topics["secured"].partitions[0]
            assert sorted(partition.isr) == list(range(BROKERS))
            names = [each.principal.name for each in server.parts.listeners[0].connections]
            assert "User:__broker" in names
        with Load(secured.client() | {"acks": "all"}) as load:
            load.goes_on()
            kept = [set(each.parts.listeners[0].connections) for each in secured.servers]
            secured.authority.issue("CN=broker,O=after").write(secured.key_file)
            for address in secured.cluster.bootstrap_servers.split(","):
                eventually(lambda at=address: secured.shown_certificate(at) == "after")
            load.goes_on()
        assert load.failed == []
        for server, before in zip(secured.servers, kept, strict=True):
            assert before <= set(server.parts.listeners[0].connections), "none was dropped"


# Brokers know each other by their certificates alone. A super user is not a broker.
CERTIFIED = {
    "listeners": "SSL://127.0.0.1:0",
    "listener.security.protocol.map": "SSL:SSL",
    "inter.broker.listener.name": "SSL",
    "ssl.client.auth": "required",
    "ssl.broker.principals": "User:CN=other;User:CN=broker,O=before",
    "authorizer.class.name": "acl",
    "super.users": "User:CN=alice",
}


class Stranger:
    """Somebody with a certificate of the brokers' authority."""

    def __init__(self, secured: Secured, name: str) -> None:
        self.identity = secured.authority.issue(name)
        self.key_file = self.identity.write(secured.directory / "stranger.pem")
        self._context = client_context(
            TlsSettings(
                keystore_key=self.identity.key_pem(),
                keystore_certificate_chain=self.identity.certificate_pem,
                truststore_certificates=secured.authority.pem,
            )
        )

    def ask(self, servers: str, name: str, version: int, request: object) -> Any:
        with RawClient(servers) as client:
            client.socket = self._context.wrap_socket(client.socket, server_hostname="127.0.0.1")
            return client.call(name, version, request)


def test_brokers_know_each_other_by_mutual_tls_alone(tmp_path: Path) -> None:
    secured = Secured(tmp_path, **CERTIFIED)
    with secured.cluster:
        alice = Stranger(secured, "CN=alice")
        client = {
            "bootstrap.servers": secured.cluster.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": alice.key_file,
            "ssl.key.location": alice.key_file,
            "log_level": 0,
        }
        round_trip(client | {"acks": "all"}, "secured")
        for server in secured.servers:
            partition = server.parts.metadata.image.topics["secured"].partitions[0]
            assert sorted(partition.isr) == list(range(BROKERS))
            brokers = [
                each for each in server.parts.listeners[0].connections if each.principal.is_broker
            ]
            assert {each.principal.name for each in brokers} == {"User:CN=broker,O=before"}
            assert all(each.login is None for each in brokers), "no SCRAM"
        for servers in secured.cluster.bootstrap_servers.split(","):
            replica = FetchRequest(replica_state=ReplicaState(1, 0), max_wait_ms=1)
            answer = alice.ask(servers, "Fetch", 15, replica)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def alter(servers: str, path: str) -> tuple[int, str]:
    """Ask one broker to alter the certificate of another one."""
    config = AlterableConfig("listener.name.ssl.ssl.keystore.location", 0, path)
    resource = AlterConfigsResource(ConfigResourceType.BROKER, "1", [config])
    with RawClient(servers) as client:
        request = IncrementalAlterConfigsRequest([resource])
        answer = client.call("IncrementalAlterConfigs", 1, request).responses[0]
    return answer.error_code, answer.error_message or ""


def test_a_certificate_is_tried_by_the_broker_that_it_is_for_whichever_is_asked(
    tmp_path: Path,
) -> None:
    listeners = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    secured = Secured(tmp_path, **listeners)
    with secured.cluster:
        servers = secured.cluster.bootstrap_servers.split(",")
        ports = [each.parts.listeners[1].port for each in secured.servers]
        for server in servers:
            code, message = alter(server, str(tmp_path / "nowhere.pem"))
            assert code == ErrorCode.INVALID_REQUEST and "nowhere.pem: No such file" in message
            assert message.startswith("broker 1: ") == (server != servers[1])
        assert not secured.servers[0].parts.metadata.image.broker_configs
        other = secured.authority.issue("CN=broker,O=after").write(tmp_path / "other.pem")
        assert alter(servers[0], other) == (0, "")
        eventually(lambda: secured.shown_certificate(f"127.0.0.1:{ports[1]}") == "after")
        assert secured.shown_certificate(f"127.0.0.1:{ports[0]}") == "before"


@pytest.mark.long
def test_a_cluster_goes_from_the_clusters_key_to_certificates_broker_by_broker(
    tmp_path: Path,
) -> None:
    secured = Secured(tmp_path)
    by_certificate = {
        "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL",
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.broker.principals": "User:CN=broker,O=before",
    }
    moved = by_certificate | {"inter.broker.listener.name": "SSL"}
    sent = 0
    with secured.cluster:
        threaded = secured.cluster._threaded
        assert threaded is not None
        first = threaded._settings
        round_trip(secured.client() | {"acks": "all"}, "moved")
        for step in (by_certificate, moved):
            threaded._settings = {**first, "min.insync.replicas": "2", **step}
            for broker in range(BROKERS):
                secured.cluster.restart(broker)
                eventually(secured.is_in_sync)
                round_trip(secured.client() | {"acks": "all"}, f"moved-{sent}")
                sent += 1
        for server in secured.servers:
            names = {
                each.principal.name
                for listener in server.parts.listeners
                for each in listener.connections
                if each.principal.is_broker
            }
            assert names == {"User:CN=broker,O=before"}, "nobody proves it by the key any more"
    assert sent == 2 * BROKERS
