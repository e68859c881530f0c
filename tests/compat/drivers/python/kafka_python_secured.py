"""Secured listeners with kafka-python."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.compat.drivers.python.loop import JsonObject
from tests.compat.drivers.python.secured import (
    READ_TIMEOUT_S,
    TIMEOUT_MS,
    TIMEOUT_S,
    named,
    tls_context,
)


class _Token(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def _settings(connection: JsonObject) -> dict[str, Any]:
    return {
        "bootstrap_servers": connection["servers"],
        "bootstrap_timeout_ms": TIMEOUT_MS // 2,
        "security_protocol": connection["protocol"],
        "ssl_context": tls_context(connection),
        "sasl_mechanism": connection["mechanism"],
        "sasl_plain_username": connection["username"],
        "sasl_plain_password": connection["password"],
        "sasl_oauth_token_provider": _Token(connection["token"]) if connection["token"] else None,
    }


class SecuredOperations:
    def secured_produce(self, connection: JsonObject, topic: str, value: str) -> None:
        try:
            producer = KafkaProducer(**_settings(connection), max_block_ms=TIMEOUT_MS)
            try:
                producer.send(topic, value.encode()).get(TIMEOUT_S)
            finally:
                producer.close(timeout=1)
        except Exception as error:
            raise named(error) from error

    def secured_consume(self, connection: JsonObject, topic: str, group: str) -> str:
        try:
            consumer = KafkaConsumer(
                topic,
                **_settings(connection),
                group_id=group,
                auto_offset_reset="earliest",
                consumer_timeout_ms=int(READ_TIMEOUT_S * 1000),
            )
            try:
                return next(consumer).value.decode()
            finally:
                consumer.close()
        except Exception as error:
            raise named(error) from error
