"""Our client against Apache Kafka over TLS and SASL: what it lets in, and what it refuses."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e.secured_kafka import PASSWORD, SecuredKafka, secured_kafka, unsecured_token
from tidelog.cli.main import main
from tidelog.client.acl_admin import create_acls, delete_acls, list_acls
from tidelog.client.admin import describe_cluster
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_producer import Producer
from tidelog.client.faults import AuthenticationError, MechanismError, NetworkError, TlsError
from tidelog.client.security import read_security
from tidelog.client.settings import ClientSettings, ProducerSettings
from tidelog.client.user_admin import (
    MECHANISMS,
    NewPassword,
    User,
    delete_user,
    list_users,
    set_password,
)
from tidelog.host.random import SystemRandom
from tidelog.security.acl import AclBinding, AclFilter, PatternType, Permission
from tidelog.security.authorizer import Operation

pytestmark = [pytest.mark.java, pytest.mark.long]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as started:
        yield started


def settings(kafka: SecuredKafka, protocol: str, **values: str) -> ClientSettings:
    given = {name.replace("_", "."): value for name, value in values.items()}
    if protocol.endswith("SSL"):
        given.setdefault("ssl.truststore.location", kafka.trust)
    security = read_security({"security.protocol": protocol, **given})
    return ClientSettings.impatient("secured", 15_000, security)


def cluster_id(kafka: SecuredKafka, protocol: str, **values: str) -> str | None:
    with Client(kafka.servers[protocol], settings(kafka, protocol, **values)) as client:
        return client.run(describe_cluster(client.cluster)).cluster_id


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_lets_in(kafka: SecuredKafka, protocol: str, mechanism: str) -> None:
    user = {"sasl_mechanism": mechanism, "sasl_username": "alice"}
    assert cluster_id(kafka, protocol, **user, sasl_password=PASSWORD)
    with pytest.raises(AuthenticationError, match=f"SASL: {mechanism} authentication failed"):
        cluster_id(kafka, protocol, **user, sasl_password="wrong")


def test_a_certificate_lets_in(kafka: SecuredKafka) -> None:
    own = kafka.authority.issue("CN=alice").write(kafka.directory / "alice.pem")
    assert cluster_id(kafka, "SSL", ssl_keystore_location=own)
    with pytest.raises(TlsError, match="refuses the client's certificate, or misses one"):
        cluster_id(kafka, "SSL")


def test_a_token_lets_in_and_the_session_is_renewed(kafka: SecuredKafka) -> None:
    secured = settings(
        kafka, "SASL_SSL", sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token=unsecured_token("alice"),
    )  # fmt: skip
    with Client(kafka.servers["SASL_SSL"], secured) as client:
        until = time.monotonic() + 5
        asked = 0
        while time.monotonic() < until:
            assert client.run(describe_cluster(client.cluster)).cluster_id
            asked += 1
        assert asked > 10
    expired = unsecured_token("alice", expired=True)
    with pytest.raises(AuthenticationError):
        cluster_id(kafka, "SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=expired)


def test_users_and_rules_are_kept_by_kafka(
    kafka: SecuredKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(kafka.servers["PLAINTEXT"], ClientSettings.impatient("admin", 15_000)) as client:
        cluster = client.cluster
        bob = NewPassword("bob", "bobs", list(MECHANISMS), 4096)
        client.run(set_password(cluster, bob, SystemRandom()))
        [found] = client.run(list_users(cluster, ["bob", "nobody"]))
        assert found == User("bob", {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096})
        login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "bob"}
        assert cluster_id(kafka, "SASL_SSL", **login, sasl_password="bobs")
        rules = [
            AclBinding(2, 3, "orders", "User:bob", "*", Operation.READ, Permission.ALLOW),
            AclBinding(2, 4, "ord", "User:bob", "10.0.0.1", Operation.ALTER, Permission.DENY),
        ]
        client.run(create_acls(cluster, rules))
        assert client.run(list_acls(cluster, AclFilter(2, PatternType.MATCH, "orders"))) == rules
        with pytest.raises(SystemExit):
            main(
                ["acl", "explain", "bob", "Read", "--topic", "orders", "-b", client_servers(kafka)]
            )
        assert "a rule allows it: User:bob may Read topic orders" in capsys.readouterr().out
        assert client.run(delete_acls(cluster, [AclFilter(principal="User:bob")])) == rules
        assert client.run(list_acls(cluster, AclFilter())) == []
        client.run(delete_user(cluster, found))
        assert client.run(list_users(cluster, ["bob"])) == []


def client_servers(kafka: SecuredKafka) -> str:
    return kafka.servers["PLAINTEXT"]


def test_records_are_written_over_tls(kafka: SecuredKafka) -> None:
    client = settings(
        kafka, "SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="alice",
        sasl_password=PASSWORD,
    )  # fmt: skip
    with Producer(kafka.servers["SASL_SSL"], ProducerSettings(client=client)) as producer:
        sent = [
            producer.send(ProducerRecord("secured", value=b"v" * 1000, partition=0))
            for _ in range(3000)
        ]
        producer.flush()
        assert [each.result() for each in sent] == list(range(3000))


def test_a_listener_of_another_protocol_is_named(kafka: SecuredKafka) -> None:
    plain = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": PASSWORD}
    servers = kafka.servers
    own = kafka.authority.issue("CN=alice").write(kafka.directory / "other.pem")
    for protocol, place, kind, words in (
        ("SASL_PLAINTEXT", "PLAINTEXT", MechanismError, "does not authenticate by SASL"),
        ("SASL_SSL", "SASL_PLAINTEXT", NetworkError, "the listener may be plaintext"),
        ("SASL_SSL", "SSL", MechanismError, "does not authenticate by SASL"),
    ):
        values = {**plain, "ssl_keystore_location": own} if place == "SSL" else plain
        with (
            Client(servers[place], settings(kafka, protocol, **values)) as client,
            pytest.raises(kind, match=words),
        ):
            client.run(describe_cluster(client.cluster))
