"""Who may do what, request by request, against the authorizer of Apache Kafka 4.3: the same.

With `TIDELOG_LONG` every version of every API is asked, else the newest of each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.authorization_matrix import (
    SecuredKafka,
    Users,
    grant_all,
    play,
    secured_settings,
)
from tests.e2e.authorization_world import build
from tests.e2e.raw_client import RawClient
from tidelog.testing import Broker

pytestmark = pytest.mark.java

ONLY_NEWEST = not os.environ.get("TIDELOG_LONG")
ANSWERS_MIN = 380 if ONLY_NEWEST else 2_000
SETTINGS = {
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
}


def agree(label: str, answer: Any, expected: Any) -> bool:
    """Whether an answer is Kafka's, but for what differs on purpose."""
    request = label.partition(": ")[2]
    if request.startswith("Fetch") and request.endswith("replica"):
        # Kafka blames each topic; ours says that only brokers may fetch as replicas.
        return "CLUSTER_AUTHORIZATION_FAILED" in repr(
            answer
        ) and "'TOPIC_AUTHORIZATION_FAILED'" in repr(expected)
    if request == "CreateTopics 7: dry":
        # Kafka draws an id for a topic that it does not create; ours names none.
        for each in (*answer["topics"], *expected["topics"]):
            del each["topic_id"]
    return bool(answer == expected)


@pytest.fixture(scope="module")
def expected() -> Iterator[dict[str, object]]:
    """What Apache Kafka answers."""
    with SecuredKafka(settings=SETTINGS) as kafka:
        yield played(kafka.bootstrap_servers, kafka.users)


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, object]]:
    """What our broker answers."""
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0"}
    with Broker(settings={**SETTINGS, **secured_settings(), **listeners}) as broker:
        server = broker._broker
        assert server is not None
        ports = {each.name: each.port for each in server.parts.listeners}
        yield played(f"127.0.0.1:{ports['PLAINTEXT']}", f"127.0.0.1:{ports['USERS']}")


def played(open_to_admin: str, open_to_users: str) -> dict[str, object]:
    with RawClient(open_to_admin) as admin:
        topic_ids = build(admin.call)
    grant_all(open_to_admin)
    users = Users(open_to_users)
    try:
        return play(users.ask, topic_ids, only_newest=ONLY_NEWEST)
    finally:
        users.close()


def test_every_client_may_do_what_kafka_lets_it(
    expected: dict[str, object], answers: dict[str, object]
) -> None:
    assert len(answers) == len(expected) >= ANSWERS_MIN
    differing = {
        label: (answers[label], expected[label])
        for label in expected
        if not agree(label, answers[label], expected[label])
    }
    assert differing == {}
