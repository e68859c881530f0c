"""Fixtures of pytest wherever Tidelog is installed: `tidelog_broker` and `tidelog_topic`.

    def test_orders(tidelog_broker, tidelog_topic):
        producer = Producer({"bootstrap.servers": tidelog_broker.bootstrap_servers})
        producer.produce(tidelog_topic, b"one")

Nothing of Tidelog is imported before a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker


@pytest.fixture(scope="session")
def tidelog_broker() -> Iterator[Broker]:
    """A real broker on a free port, shared by the session's tests."""
    from tidelog.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def tidelog_topic(tidelog_broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a fresh topic with one partition, deleted after the test."""
    import uuid

    from tidelog.client.admin import NewTopic, create_topic, delete_topic
    from tidelog.client.blocking import Client

    name = f"{safe_name(request.node.name)}-{uuid.uuid4().hex[:8]}"
    with Client(tidelog_broker.bootstrap_servers) as client:
        client.run(create_topic(client.cluster, NewTopic(name, partitions=1)))
        yield name
        client.run(delete_topic(client.cluster, name))


def safe_name(test: str) -> str:
    """The part of a topic's name that says which test it is for: a topic's name is ASCII."""
    kept = (each if each.isascii() and each.isalnum() else "-" for each in test)
    return "".join(kept)[:80]
