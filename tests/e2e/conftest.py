"""What tests that speak the wire protocol with one broker begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.produce_requests import create_topic
from tests.e2e.raw_client import RawClient
from tidelog.testing import Broker


@pytest.fixture
def client(tidelog_broker: Broker) -> Iterator[RawClient]:
    with RawClient(tidelog_broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with two partitions."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]
    create_topic(client, name, partitions=2, retention_ms="-1")
    return name
