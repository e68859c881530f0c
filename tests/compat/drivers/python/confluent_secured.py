"""Secured listeners with confluent-kafka. It reports why it cannot connect to a callback alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from tests.compat.drivers.python.loop import DriverError, JsonObject
from tests.compat.drivers.python.secured import READ_TIMEOUT_S, TIMEOUT_MS

# What follows from the error that counts, or comes before it.
_SEQUELS = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


def _settings(connection: JsonObject, seen: list[KafkaError]) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": connection["servers"],
        "security.protocol": connection["protocol"],
        "ssl.ca.location": connection["ca"],
        "ssl.certificate.location": connection["certificate"],
        "ssl.key.location": connection["certificate"],
        "sasl.mechanism": connection["mechanism"],
        "sasl.username": connection["username"],
        "sasl.password": connection["password"],
        "log_level": 0,
        "error_cb": seen.append,
    }
    if token := connection["token"]:
        settings["oauth_cb"] = lambda _: (token, time.time() + 3600)
    return {name: value for name, value in settings.items() if value is not None}


def _refusal(seen: list[KafkaError]) -> KafkaError | None:
    return next((error for error in list(seen) if not _is_sequel(error)), None)


def _is_sequel(error: KafkaError) -> bool:
    return error.code() in _SEQUELS and "SSL alert" not in error.str()


def _wait(poll: Callable[[], bool], seen: list[KafkaError]) -> None:
    """Poll until it is done; raises the client's first error that says why it cannot be."""
    deadline = time.monotonic() + READ_TIMEOUT_S
    while not poll():
        error = _refusal(seen)
        if error is None and time.monotonic() > deadline:
            error = seen[-1] if seen else KafkaError(KafkaError._TIMED_OUT)
        if error is not None:
            raise DriverError(error.str(), kind=error.name())


class SecuredOperations:
    def secured_produce(self, connection: JsonObject, topic: str, value: str) -> None:
        seen: list[KafkaError] = []
        outcomes: list[KafkaError | None] = []
        producer = Producer({**_settings(connection, seen), "message.timeout.ms": TIMEOUT_MS})
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: outcomes.append(error))

        def is_told() -> bool:
            producer.poll(0.05)
            return bool(outcomes)

        try:
            _wait(is_told, seen)
        finally:
            producer.purge()
            producer.flush(1)
        (error,) = outcomes
        if error is not None:
            raise DriverError(error.str(), kind=error.name())

    def secured_consume(self, connection: JsonObject, topic: str, group: str) -> str:
        seen: list[KafkaError] = []
        consumer = Consumer(
            {
                **_settings(connection, seen),
                "group.id": group,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        values: list[str] = []

        def is_read() -> bool:
            message = consumer.poll(0.05)
            if message is None:
                return False
            error = message.error()
            if error is not None:
                seen.append(error)
                return False
            values.append(message.value().decode())
            return True

        try:
            _wait(is_read, seen)
        finally:
            consumer.close()
        return values[0]
