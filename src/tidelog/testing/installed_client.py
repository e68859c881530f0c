"""Producers and consumers of whichever Kafka client a test's project has installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol


class InstalledClient(Protocol):
    """How the fixtures use a client."""

    def producer(self, servers: str) -> Any: ...
    def consumer(self, servers: str, topics: Sequence[str], group: str) -> Any: ...
    def close_producer(self, producer: Any) -> None: ...


class _ConfluentKafka:
    def __init__(self) -> None:
        self._module: Any = import_module("confluent_kafka")

    def producer(self, servers: str) -> Any:
        return self._module.Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def consumer(self, servers: str, topics: Sequence[str], group: str) -> Any:
        settings = {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = self._module.Consumer({"bootstrap.servers": servers, **settings})
        consumer.subscribe(list(topics))
        return consumer

    def close_producer(self, producer: Any) -> None:
        producer.flush(10)


class _KafkaPython:
    def __init__(self) -> None:
        self._module: Any = import_module("kafka")

    def producer(self, servers: str) -> Any:
        return self._module.KafkaProducer(bootstrap_servers=servers)

    def consumer(self, servers: str, topics: Sequence[str], group: str) -> Any:
        return self._module.KafkaConsumer(
            *topics, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
        )

    def close_producer(self, producer: Any) -> None:
        producer.close()


# By the name of the distribution; the first one that is installed is used.
_CLIENTS: Final[dict[str, Callable[[], InstalledClient]]] = {
    "confluent-kafka": _ConfluentKafka,
    "kafka-python": _KafkaPython,
}


def installed_client(name: str = "") -> InstalledClient:
    """The client of that name, or the first one that can be imported."""
    known = ", ".join(_CLIENTS)
    if name and name not in _CLIENTS:
        raise ValueError(f"tidelog_client = {name}: give one of {known}")
    for each in [name] if name else _CLIENTS:
        try:
            return _CLIENTS[each]()
        except ImportError:
            continue
    raise ImportError(
        f"tidelog_producer and tidelog_consumer need {name or f'one of {known}'};"
        " install it, or make your own client with tidelog_broker.bootstrap_servers"
    )
