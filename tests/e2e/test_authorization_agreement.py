"""Who may do what, request by request, against the authorizer of Apache Kafka 4.3: the same.

With `TIDELOG_LONG` every version of every API is asked, else the newest of each.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.answers_script import shown
from tests.e2e.authorization_matrix import (
    SecuredKafka,
    Users,
    all_grants,
    grant_all,
    play,
    questions,
)
from tests.e2e.authorization_world import build
from tests.e2e.in_process import InProcessBroker
from tests.e2e.raw_client import RawClient
from tests.unit.server.permissions import (
    bindings,
    build_in_process,
    connect_as,
    put_in_force,
)
from tidelog.security.acl_authorizer import AclAuthorizer

pytestmark = pytest.mark.java

ONLY_NEWEST = not os.environ.get("TIDELOG_LONG")
ANSWERS_MIN = 280 if ONLY_NEWEST else 1_500
SETTINGS = {
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
}
_AS_REPLICA = "Kafka blames each topic; ours says that only brokers may fetch as replicas"
_NO_ID = "Kafka draws an id for a topic that it does not create; ours names none"


def difference(label: str, answer: object) -> str:
    """Why an answer differs on purpose; empty where it must not."""
    request = label.partition(": ")[2]
    if request.startswith("Fetch") and request.endswith("replica"):
        return _AS_REPLICA if "CLUSTER_AUTHORIZATION_FAILED" in repr(answer) else ""
    if request == "CreateTopics 7: dry":
        return _NO_ID if "AUTHORIZATION_FAILED" not in repr(answer) else ""
    return ""


@pytest.fixture(scope="module")
def expected() -> Iterator[dict[str, object]]:
    """What Apache Kafka answers."""
    with SecuredKafka(settings=SETTINGS) as kafka:
        with RawClient(kafka.bootstrap_servers) as admin:
            topic_ids = build(admin.call)
        grant_all(kafka.bootstrap_servers)
        users = Users(kafka.users)
        try:
            yield play(users.ask, topic_ids, only_newest=ONLY_NEWEST)
        finally:
            users.close()


async def ours(directory: Path) -> dict[str, object]:
    async with InProcessBroker(directory, SETTINGS) as broker:
        acls = bindings(all_grants())
        authorizer = AclAuthorizer(lambda: acls, frozenset(), allow_without_acl=False)
        put_in_force(authorizer, broker)
        topic_ids = await build_in_process(broker)

        async def ask(user: str, name: str, version: int, request: Any) -> Any:
            client = connect_as(user, broker)
            try:
                return await client.call(name, version, request)
            finally:
                client.close()

        return {
            label: shown(await ask(*question))
            for label, question in questions(topic_ids, only_newest=ONLY_NEWEST)
        }


def test_every_client_may_do_what_kafka_lets_it(
    expected: dict[str, object], tmp_path: Path
) -> None:
    answers = asyncio.run(asyncio.wait_for(ours(tmp_path), 200))
    assert len(answers) == len(expected) >= ANSWERS_MIN
    differing = {
        label: (answers[label], expected[label])
        for label in expected
        if answers[label] != expected[label] and not difference(label, answers[label])
    }
    assert differing == {}
