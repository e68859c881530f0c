"""`Broker(security=…)`: our client and another one come in as a user, and nobody else does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as OtherProducer
from confluent_kafka.admin import AdminClient

from tidelog.cli.main import main
from tidelog.client.admin import describe_cluster
from tidelog.client.aio import Consumer, Producer
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.faults import AuthenticationError, SecurityError, TlsError
from tidelog.client.login import Credentials, Messages
from tidelog.client.offsets import Start
from tidelog.client.security import read_security
from tidelog.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tidelog.errors import ConfigError, TidelogError
from tidelog.model import TopicPartition
from tidelog.testing import Broker, Cluster, Security, VirtualClock


def cluster_id(servers: str, settings: dict[str, str], timeout_ms: int = 10_000) -> str | None:
    secured = ClientSettings.impatient("tester", timeout_ms, read_security(settings))
    with Client(servers, secured) as client:
        return client.run(describe_cluster(client.cluster)).cluster_id


@pytest.mark.parametrize(
    "security",
    [
        Security("SASL_SSL", "SCRAM-SHA-512"),
        Security("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        Security("SASL_SSL", "PLAIN", {"alice": "a secret", "bob": "another"}),
        Security("SSL"),
    ],
    ids=lambda each: f"{each.protocol}-{each.mechanism}",
)
def test_a_user_comes_in_and_nobody_else(security: Security) -> None:
    with Broker(security=security) as broker:
        own = broker.client_settings("alice")
        assert cluster_id(broker.bootstrap_servers, own)
        other = {
            "bootstrap.servers": broker.bootstrap_servers,
            **broker.librdkafka_settings("alice"),
        }
        assert AdminClient(other).list_topics(timeout=10).brokers
        with pytest.raises(TidelogError):
            cluster_id(broker.bootstrap_servers, {}, timeout_ms=300)
        if security.is_sasl:
            wrong = {**own, "sasl.jaas.config": own["sasl.jaas.config"].replace("secret", "wrong")}
            with pytest.raises(AuthenticationError):
                cluster_id(broker.bootstrap_servers, wrong)
        else:
            del own["ssl.keystore.location"]
            with pytest.raises((TlsError, TidelogError), match="certificate"):
                cluster_id(broker.bootstrap_servers, own)
        with pytest.raises(ConfigError, match="no user 'carol'; there are alice"):
            broker.client_settings("carol")


@pytest.mark.parametrize("clock", [None, VirtualClock()], ids=["processes", "threads"])
def test_every_broker_of_a_cluster_takes_its_users_and_nobody_else(
    clock: VirtualClock | None,
) -> None:
    rules = {"authorizer.class.name": "acl", "super.users": "User:admin"}
    security = Security("SASL_SSL", "SCRAM-SHA-256", {"admin": "secret", "bob": "other secret"})
    with Cluster(2, settings=rules, clock=clock, security=security) as cluster:
        produce(cluster.bootstrap_servers, cluster.librdkafka_settings("admin"))
        assert cluster.leader_of("orders") in (0, 1)
        for server in cluster.bootstrap_servers.split(","):
            for user in ("admin", "bob"):
                assert cluster_id(server, cluster.client_settings(user))
            wrong = cluster.client_settings("bob")
            wrong["sasl.jaas.config"] = wrong["sasl.jaas.config"].replace("other", "wrong")
            with pytest.raises(AuthenticationError):
                cluster_id(server, wrong)
        with pytest.raises(KafkaException, match="Topic authorization failed"):
            produce(cluster.bootstrap_servers, cluster.librdkafka_settings("bob"))
        key = Path(cluster.client_settings("admin")["ssl.truststore.location"])
        assert key.parent.stat().st_mode & 0o077 == 0
    assert not key.parent.exists()


@pytest.mark.parametrize("security", ["SSL", Security("SASL_PLAINTEXT", "PLAIN")])
def test_a_cluster_is_secured_in_other_ways(security: Security | str) -> None:
    with Cluster(2, clock=VirtualClock(), security=security) as cluster:
        produce(cluster.bootstrap_servers, cluster.librdkafka_settings("alice"))
        threaded = cluster._threaded
        assert threaded is not None
        brokers = threaded._brokers[0].parts.listeners[1]
        # Nobody gets around the listener for clients on that of the brokers.
        with pytest.raises(TidelogError):
            cluster_id(f"127.0.0.1:{brokers.port}", {}, timeout_ms=300)


def produce(servers: str, settings: dict[str, str]) -> None:
    failed: list[KafkaError] = []
    producer = OtherProducer({"bootstrap.servers": servers, **settings, "acks": "all"})
    producer.produce("orders", b"v", on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(20) == 0
    if failed:
        raise KafkaException(failed[0])


def test_the_keys_are_private_and_go_with_the_broker() -> None:
    with Broker(security="SSL") as broker:
        key = Path(broker.client_settings("alice")["ssl.keystore.location"])
        assert key.stat().st_mode & 0o077 == 0
        assert key.parent.stat().st_mode & 0o077 == 0
    assert not key.parent.exists()
    with pytest.raises(ConfigError, match="not secured"):
        broker.client_settings("alice")


def test_what_is_no_security_is_named() -> None:
    for wrong in (
        lambda: Broker(security="PLAINTEXT"),
        lambda: Security(mechanism="GSSAPI"),
        lambda: Security(users={}),
        lambda: Security("SSL", users={"broker": ""}),
    ):
        with pytest.raises(ConfigError):
            wrong()


def test_a_command_takes_the_settings_of_a_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.touch(0o600)

    def run(settings: dict[str, str], *command: str) -> tuple[int, str, str]:
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with pytest.raises(SystemExit) as ended:
            main([*command, "--config", str(file)])
        captured = capsys.readouterr()
        return int(str(ended.value.code)), captured.out, captured.err

    with Broker(security=Security("SASL_SSL", "SCRAM-SHA-512")) as broker:
        own = {"bootstrap.servers": broker.bootstrap_servers, **broker.client_settings("alice")}
        assert run(own, "topic", "create", "orders") == (0, "", "orders created: 1 partition\n")
        assert run(own, "topic", "list")[1].splitlines()[1].startswith("orders")
        assert run(own, "doctor")[0] == 0
        wrong = {**own, "sasl.mechanism": "SCRAM-SHA-256"}
        code, _, said = run(wrong, "topic", "list")
        assert code == 1
        assert "the mechanism SCRAM-SHA-256 is not offered; offered: SCRAM-SHA-512" in said
        wrong = {**own, "sasl.jaas.config": own["sasl.jaas.config"].replace("secret", "wrong")}
        code, _, said = run(wrong, "topic", "list")
        assert code == 1
        assert "SASL: SCRAM-SHA-512 authentication failed: the user or the password is" in said
        wrong = {**own, "ssl.truststore.location": ""}
        code, _, said = run(wrong, "topic", "list")
        assert code == 1
        assert "TLS: the broker's certificate is from an unknown authority" in said
        assert "hint: set ssl.truststore.location" in said
        wrong = {**own, "ssl.truststore.location": "/nowhere.pem"}
        code, _, said = run(wrong, "topic", "list")
        assert code == 2 and f"hint: correct {file}" in said
        assert "error: ssl.truststore.location: /nowhere.pem: No such file" in said
        for protocol, missing in (("SASL_PLAINTEXT", "TLS"), ("SSL", "SASL")):
            code, _, said = run({**own, "security.protocol": protocol}, "topic", "list")
            assert code == 3
            assert f"hint: this listener may need {missing}: try security.protocol=SASL_SSL" in said


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        ("PLAIN", "SASL: this listener does not authenticate by SASL"),
        ("SCRAM-SHA-512", "this listener authenticates brokers alone"),
    ],
)
def test_a_client_that_logs_in_where_nobody_asks_learns_that(mechanism: str, words: str) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    with Broker() as broker, pytest.raises(SecurityError, match=words):
        cluster_id(broker.bootstrap_servers, login)


def test_a_security_error_is_not_tried_again() -> None:
    with Broker(security=Security("SASL_PLAINTEXT", "SCRAM-SHA-256")) as broker:
        patient = read_security(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "x",
            }
        )
        # It would wait a minute otherwise.
        with (
            Client(broker.bootstrap_servers, ClientSettings(security=patient)) as client,
            pytest.raises(SecurityError),
        ):
            client.run(describe_cluster(client.cluster))


def test_an_asyncio_client_writes_reads_and_logs_in_again(monkeypatch: pytest.MonkeyPatch) -> None:
    logins = []
    messages = Credentials.messages

    def counted(credentials: Credentials) -> Messages:
        logins.append(credentials)
        return messages(credentials)

    monkeypatch.setattr(Credentials, "messages", counted)
    with Broker(security="SASL_SSL", settings={"connections.max.reauth.ms": 1200}) as broker:
        asyncio.run(_write_and_read(broker, lambda: len(logins)))


async def _write_and_read(broker: Broker, logins: Callable[[], int]) -> None:
    servers = broker.bootstrap_servers
    security = read_security(broker.client_settings("alice"))
    client = ClientSettings.impatient("tester", 10_000, security)
    async with Producer(servers, ProducerSettings(client=client)) as producer:
        sent = [
            await producer.send(ProducerRecord("orders", value=b"v" * 1000, partition=0))
            for _ in range(500)
        ]
        await producer.flush()
        assert [each.result() for each in sent] == list(range(500))
    async with Consumer(servers, ConsumerSettings(client=client)) as consumer:
        await consumer.assign({TopicPartition("orders", 0): Start("start")})
        count = 0
        while count < 500:
            count += sum(len(records) for _, records in await consumer.poll(5))
        # Metadata and fetches go on over connections that log in again.
        before = logins()
        while logins() == before:
            assert (await consumer.run(describe_cluster(consumer.cluster))).cluster_id
