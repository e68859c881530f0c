"""Secured listeners with aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider

from tests.compat.drivers.python.loop import JsonObject
from tests.compat.drivers.python.secured import READ_TIMEOUT_S, TIMEOUT_MS, named, tls_context


class _Token(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _settings(connection: JsonObject) -> dict[str, Any]:
    settings = {
        "bootstrap_servers": connection["servers"],
        "security_protocol": connection["protocol"],
        "ssl_context": tls_context(connection),
        "sasl_mechanism": connection["mechanism"],
        "sasl_plain_username": connection["username"],
        "sasl_plain_password": connection["password"],
        "sasl_oauth_token_provider": _Token(connection["token"]) if connection["token"] else None,
        "request_timeout_ms": TIMEOUT_MS,
    }
    return {name: value for name, value in settings.items() if value is not None}


class SecuredOperations:
    async def async_secured_produce(self, connection: JsonObject, topic: str, value: str) -> None:
        producer = AIOKafkaProducer(**_settings(connection))
        try:
            await producer.start()
            await producer.send_and_wait(topic, value.encode())
        except Exception as error:
            raise named(error) from error
        finally:
            await producer.stop()

    async def async_secured_consume(self, connection: JsonObject, topic: str, group: str) -> str:
        consumer = AIOKafkaConsumer(
            topic, **_settings(connection), group_id=group, auto_offset_reset="earliest"
        )
        try:
            await consumer.start()
            record = await asyncio.wait_for(consumer.getone(), READ_TIMEOUT_S)
        except Exception as error:
            raise named(error) from error
        finally:
            await consumer.stop()
        return record.value.decode()
