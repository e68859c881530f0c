"""A real client over TLS and SASL: it produces and consumes, or learns why it may not."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from cryptography.hazmat.primitives.asymmetric import ec

from tests.waiting import eventually
from tidelog.client.admin import describe_cluster
from tidelog.client.blocking import Client
from tidelog.client.faults import AuthenticationError
from tidelog.client.security import read_security
from tidelog.client.settings import ClientSettings
from tidelog.cluster.commands import AlterScramCredentials
from tidelog.security.credentials import ScramCredential, credential_of_password
from tidelog.security.scram import SCRAM_SHA_256, SCRAM_SHA_512
from tidelog.testing import Broker
from tidelog.testing.certificates import Authority, Identity

_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = f'{_MODULE} required user_alice="s3cret";'
_PORT_COUNT = 3


@dataclass
class Secured:
    """A broker with a listener of each kind, and what clients need to know."""

    broker: Broker
    ports: dict[str, int]
    directory: Path
    authority: Authority

    def client(self, listener: str, **changes: str) -> dict[str, Any]:
        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.ports[listener]}",
            "security.protocol": listener.replace("MUTUAL", "SSL"),
            "socket.timeout.ms": "3000",
            "log_level": 0,
        }
        if "SASL" in listener:
            settings |= {"sasl.mechanism": "PLAIN"}
            settings |= {"sasl.username": "alice", "sasl.password": "s3cret"}
        if listener != "SASL_PLAINTEXT":
            settings["ssl.ca.location"] = str(self.directory / "ca.pem")
        return settings | {name.replace("_", "."): value for name, value in changes.items()}


SIGNER = ec.generate_private_key(ec.SECP256R1())


def written_keys(directory: Path) -> str:
    """A JWKS with the public key of the signer."""
    key = jwt.algorithms.ECAlgorithm.to_jwk(SIGNER.public_key(), as_dict=True)
    path = directory / "jwks.json"
    path.write_text(json.dumps({"keys": [{**key, "kid": "signer"}]}))
    return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory, authority = tmp_path_factory.mktemp("keys"), Authority()
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": (
            "SASL_SSL:SASL_SSL,MUTUAL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        "ssl.keystore.location": authority.issue().write(directory / "broker.pem"),
        "ssl.truststore.location": authority.write(directory / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+),O=Sea$/$1/",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": (
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        ),
        "sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "sasl.oauthbearer.expected.audience": "tidelog",
        "sasl.oauthbearer.jwks.file": written_keys(directory),
        **{
            f"listener.name.{name}.plain.sasl.jaas.config": USERS
            for name in ("sasl_ssl", "sasl_plaintext")
        },
    }
    with Broker(settings=settings) as broker:
        server = broker._broker
        assert server is not None
        ports = {each.name: each.port for each in server.parts.listeners}
        assert len(ports) == _PORT_COUNT
        yield Secured(broker, ports, directory, authority)


def round_trip(settings: dict[str, Any], topic: str) -> None:
    """Produce records, and consume what was produced."""
    values = [bytes([each % 256]) * 5_000 for each in range(2_000)]
    delivered: list[KafkaError | None] = []
    producer = Producer({**settings, "linger.ms": "5"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: delivered.append(error))
        producer.poll(0)
    assert producer.flush(30) == 0
    assert delivered == [None] * len(values)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: list[bytes] = []
    while len(seen) < len(values):
        messages = consumer.consume(1_000, timeout=20)
        assert messages, f"{len(seen)} of {len(values)} arrived"
        seen += [each.value() for each in messages]
    consumer.close()
    assert seen == values


@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_a_client_produces_and_consumes_by_plain(secured: Secured, listener: str) -> None:
    round_trip(secured.client(listener), f"by-{listener}")


def test_a_client_produces_and_consumes_with_its_certificate(secured: Secured) -> None:
    round_trip(with_certificate(secured, "CN=alice,O=Sea"), "by-certificate")


def with_certificate(secured: Secured, name: str) -> dict[str, Any]:
    identity = secured.authority.issue(name)
    path = identity.write(secured.directory / f"{name}.pem")
    return secured.client("MUTUAL", ssl_certificate_location=path, ssl_key_location=path)


def set_password(secured: Secured, user: str, password: str | None) -> None:
    """Give a user a password for both mechanisms of SCRAM, or take it away."""
    made: dict[str, ScramCredential | None] = {
        each.name: None
        if password is None
        else credential_of_password(each, password, b"salt of 16 bytes", 4096)
        for each in (SCRAM_SHA_256, SCRAM_SHA_512)
    }
    server, thread = secured.broker._broker, secured.broker._thread
    assert server is not None and thread is not None
    thread.call(server.parts.submitter.submit(AlterScramCredentials(user, made)))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_produces_and_consumes_by_scram(secured: Secured, mechanism: str) -> None:
    set_password(secured, "bob", "päss,word=1")
    settings = secured.client("SASL_PLAINTEXT", sasl_mechanism=mechanism)
    round_trip(settings | {"sasl.username": "bob", "sasl.password": "päss,word=1"}, mechanism)


def test_x15_a_deleted_users_connections_end_and_it_cannot_come_back(secured: Secured) -> None:
    set_password(secured, "eve", "s3cret")
    settings = secured.client("SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", sasl_username="eve")
    producer = Producer(settings)
    producer.produce("of-eve", b"x")
    assert producer.flush(20) == 0
    server = secured.broker._broker
    assert server is not None
    listener = next(each for each in server.parts.listeners if each.name == "SASL_PLAINTEXT")

    def connections() -> int:
        return [each.principal.name for each in tuple(listener.connections)].count("User:eve")

    eventually(lambda: connections() >= 1)
    set_password(secured, "eve", None)
    eventually(lambda: connections() == 0, seconds=5)
    assert "the user or the password is wrong" in refusal(settings, "_AUTHENTICATION")


def with_token(secured: Secured, seconds: float = 600, **changes: str) -> dict[str, Any]:
    """The settings of a client that shows tokens."""

    def token(_: str) -> tuple[str, float]:
        ends = time.time() + seconds
        said = {"sub": "pump", "iss": "https://issuer.example", "aud": "tidelog", "exp": ends}
        text = jwt.encode(said | changes, SIGNER, algorithm="ES256", headers={"kid": "signer"})
        return text, ends

    settings = secured.client("SASL_SSL", sasl_mechanism="OAUTHBEARER")
    del settings["sasl.username"], settings["sasl.password"]
    return settings | {"oauth_cb": token}


def test_a_client_produces_and_consumes_with_tokens(secured: Secured) -> None:
    round_trip(with_token(secured), "by-token")


def test_our_client_shows_the_token_in_a_file(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(secured.directory / "ca.pem"),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.file": str(file),
    }
    client_settings = ClientSettings.impatient("tester", 10_000, read_security(settings))

    def cluster_id() -> str | None:
        servers = f"127.0.0.1:{secured.ports['SASL_SSL']}"
        with Client(servers, client_settings) as client:
            return client.run(describe_cluster(client.cluster)).cluster_id

    file.write_text(with_token(secured)["oauth_cb"]("")[0])
    assert cluster_id()
    file.write_text(with_token(secured, aud="another")["oauth_cb"]("")[0])
    with pytest.raises(AuthenticationError, match=r"OAUTHBEARER authentication failed: .*token"):
        cluster_id()


def test_x12_a_token_for_another_audience_is_refused(secured: Secured) -> None:
    said = refusal(with_token(secured, aud="another"), "_AUTHENTICATION")
    assert "the token is not accepted" in said


def refusal(settings: dict[str, Any], kind: str = "") -> str:
    """What the client reports when it is refused, until it reports an error of a kind."""
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append})
    for _ in range(100):
        if any(kind in each.name() for each in errors):
            break
        producer.poll(0.1)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.1)
    return " ".join(f"{each.name()} {each.str()}" for each in errors)


def test_a_wrong_password_is_refused_with_the_reason(secured: Secured) -> None:
    said = refusal(secured.client("SASL_SSL", sasl_password="wrong"), "_AUTHENTICATION")
    assert "the user or the password is wrong" in said


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(secured: Secured) -> None:
    said = refusal(secured.client("SASL_SSL", sasl_mechanism="SCRAM-SHA-256"), "_AUTHENTICATION")
    assert "PLAIN" in said


def test_x3_a_client_without_a_certificate_is_refused(secured: Secured) -> None:
    assert refusal(secured.client("MUTUAL"))


def test_x3_a_certificate_that_no_rule_fits_is_refused(secured: Secured) -> None:
    assert refusal(with_certificate(secured, "CN=alice,OU=x,O=Sea"))


def test_x2_a_client_that_does_not_know_the_authority_refuses_the_broker(secured: Secured) -> None:
    other = Authority().write(secured.directory / "other.pem")
    assert refusal(secured.client("SASL_SSL", ssl_ca_location=other))


def shown_organization(port: int, identity: Identity, directory: Path) -> str:
    """Who a broker says that it is, to a client with a certificate."""
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    context.load_cert_chain(identity.write(directory / "looking.pem"))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as stream,
        context.wrap_socket(stream, server_hostname="127.0.0.1") as tls,
    ):
        shown: Any = tls.getpeercert()
        return str(dict(part[0] for part in shown["subject"]).get("organizationName", ""))


def test_x4_a_certificate_is_replaced_through_the_wire(secured: Secured) -> None:
    admin = AdminClient(secured.client("SASL_SSL"))
    alice = secured.authority.issue("CN=alice,O=Sea")

    def alter(path: str) -> None:
        entry = ConfigEntry(
            "listener.name.mutual.ssl.keystore.location",
            path,
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(10)

    def shown(listener: str) -> str:
        return shown_organization(secured.ports[listener], alice, secured.directory)

    assert shown("MUTUAL") == ""
    renewed = secured.authority.issue("CN=broker,O=renewed")
    alter(renewed.write(secured.directory / "renewed.pem"))
    eventually(lambda: shown("MUTUAL") == "renewed")
    assert shown("SASL_SSL") == "", "the other listener has its own"
    with pytest.raises(KafkaException, match="No such file"):
        alter("/nowhere/else.pem")
    with pytest.raises(KafkaException, match="its mode is 0644"):
        alter(renewed.write(secured.directory / "open.pem", 0o644))
    assert shown("MUTUAL") == "renewed", "what does not work changes nothing"
