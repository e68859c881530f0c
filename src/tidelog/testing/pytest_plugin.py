"""Fixtures of pytest wherever Tidelog is installed.

    def test_orders(tidelog_topic, tidelog_producer, tidelog_consumer):
        tidelog_producer.produce(tidelog_topic, b"one")
        tidelog_producer.flush()
        assert tidelog_consumer(tidelog_topic).poll(10).value() == b"one"

Producers and consumers are those of the Kafka client that is installed. Nothing of Tidelog is
imported before a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker
    from tidelog.testing.cluster import Cluster
    from tidelog.testing.installed_client import InstalledClient


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "The client of tidelog_producer and tidelog_consumer: confluent-kafka, kafka-python"
    parser.addini("tidelog_client", help_text, default="")


@pytest.fixture(scope="session")
def tidelog_broker() -> Iterator[Broker]:
    """A real broker on a free port, shared by the session's tests."""
    from tidelog.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def tidelog_cluster() -> Iterator[Cluster]:
    """Three brokers, each a process, that replicate; shared by the session's tests."""
    from tidelog.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def tidelog_topics(
    tidelog_broker: Broker, request: pytest.FixtureRequest
) -> Iterator[Callable[..., str]]:
    """A function that creates a topic and returns its name; the topics are deleted after the test.

    `tidelog_topics()` has one partition; `tidelog_topics(partitions=3)`, `tidelog_topics("orders")`
    for a name of your own, and settings as Kafka names them:
    `tidelog_topics(settings={"cleanup.policy": "compact"})`.
    """
    import uuid
    from contextlib import suppress

    from tidelog.client.admin import NewTopic, create_topic, delete_topic
    from tidelog.client.blocking import Client
    from tidelog.client.operation import UnknownTopicError

    made: list[str] = []
    with Client(tidelog_broker.bootstrap_servers) as client:

        def create(
            name: str = "", *, partitions: int = 1, settings: dict[str, str] | None = None
        ) -> str:
            name = name or f"{safe_name(request.node.name)}-{uuid.uuid4().hex[:8]}"
            wanted = NewTopic(name, partitions=partitions, configs=settings or {})
            client.run(create_topic(client.cluster, wanted))
            made.append(name)
            return name

        yield create
        for name in made:
            # The test may have deleted it.
            with suppress(UnknownTopicError):
                client.run(delete_topic(client.cluster, name))


@pytest.fixture
def tidelog_topic(tidelog_topics: Callable[..., str]) -> str:
    """The name of a fresh topic with one partition, deleted after the test."""
    return tidelog_topics()


@pytest.fixture
def tidelog_producer(tidelog_broker: Broker, _tidelog_client: InstalledClient) -> Iterator[Any]:
    """A producer of the installed client, closed after the test."""
    producer = _tidelog_client.producer(tidelog_broker.bootstrap_servers)
    yield producer
    _tidelog_client.close_producer(producer)


@pytest.fixture
def tidelog_consumer(
    tidelog_broker: Broker, _tidelog_client: InstalledClient
) -> Iterator[Callable[..., Any]]:
    """A function that subscribes to topics and returns a consumer, closed after the test.

    It reads from the start, in a group of its own unless you name one:
    `tidelog_consumer("orders", group="billing")`.
    """
    import uuid

    made: list[Any] = []

    def subscribe(*topics: str, group: str = "") -> Any:
        group = group or f"test-{uuid.uuid4().hex[:8]}"
        made.append(_tidelog_client.consumer(tidelog_broker.bootstrap_servers, topics, group))
        return made[-1]

    yield subscribe
    for consumer in made:
        consumer.close()


@pytest.fixture
def _tidelog_client(pytestconfig: pytest.Config) -> InstalledClient:
    from tidelog.testing.installed_client import installed_client

    return installed_client(pytestconfig.getini("tidelog_client"))


def safe_name(test: str) -> str:
    """The part of a topic's name that says which test it is for: a topic's name is ASCII."""
    kept = (each if each.isascii() and each.isalnum() else "-" for each in test)
    return "".join(kept)[:80]
