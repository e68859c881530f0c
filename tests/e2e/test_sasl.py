"""Brokers authenticate by SASL as clients of other makers do; nobody else gets in that way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.e2e.produce_requests import create_topic, fetch
from tests.e2e.raw_client import RawClient
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tidelog.security.broker_identity import BROKER_USER, BrokerIdentity
from tidelog.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def identity(broker: Broker) -> BrokerIdentity:
    assert broker._broker is not None
    found = broker._broker.parts.login.identity
    assert found is not None
    return found


def librdkafka(broker: Broker, password: str, mechanism: str = "SCRAM-SHA-512") -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": BROKER_USER,
            "sasl.password": password,
            "socket.timeout.ms": 5_000,
        },
        logger=logging.getLogger("librdkafka"),
    )


def test_librdkafka_authenticates_with_the_password_of_the_key(
    broker: Broker, identity: BrokerIdentity
) -> None:
    assert librdkafka(broker, identity.password).list_topics(timeout=10).brokers


def test_librdkafka_does_not_get_in_without_it(broker: Broker, identity: BrokerIdentity) -> None:
    for password, mechanism in (("guessed", "SCRAM-SHA-512"), (identity.password, "SCRAM-SHA-256")):
        with pytest.raises(KafkaException):
            librdkafka(broker, password, mechanism).list_topics(timeout=1)


def test_aiokafka_authenticates_and_is_refused_likewise(
    broker: Broker, identity: BrokerIdentity
) -> None:
    async def start(password: str) -> None:
        admin = AIOKafkaAdminClient(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username=BROKER_USER,
            sasl_plain_password=password,
        )
        try:
            await admin.start()
        finally:
            await admin.close()

    asyncio.run(start(identity.password))
    with pytest.raises(AiokafkaError):
        asyncio.run(start("guessed"))


def log_in(client: RawClient, identity: BrokerIdentity) -> None:
    exchange = identity.client("nonce")
    assert client.call("SaslHandshake", 1, SaslHandshakeRequest("SCRAM-SHA-512")).error_code == 0
    token = client.call("SaslAuthenticate", 2, SaslAuthenticateRequest(exchange.first()))
    proof = SaslAuthenticateRequest(exchange.final(token.auth_bytes))
    exchange.finish(client.call("SaslAuthenticate", 2, proof).auth_bytes)


def test_a_replica_is_one_that_authenticated_as_a_broker(
    broker: Broker, identity: BrokerIdentity
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        create_topic(client, "replicated")
        request = fetch("replicated")
        request.replica_id = 3
        code = client.call("Fetch", 11, request).error_code
        assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with RawClient(broker.bootstrap_servers) as client:
        log_in(client, identity)
        assert client.call("Fetch", 11, request).error_code == ErrorCode.NONE


def test_the_key_is_in_no_log_line_and_no_file_but_the_store(
    tmp_path: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), Broker(data_dir=str(tmp_path)) as broker:
        assert broker._broker is not None
        found = broker._broker.parts.login.identity
        assert found is not None
        with RawClient(broker.bootstrap_servers) as client:
            log_in(client, found)
    assert caplog.text
    for secret in (found._key.hex(), found.password):
        assert secret not in caplog.text
