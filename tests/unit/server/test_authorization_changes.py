"""A permission that is taken away ends what it allowed, at once, on every way to the records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.authorization_requests import CONSUMERS, TOPIC, TRANSACTIONAL_ID, requests
from tests.e2e.in_process import InProcessBroker, RawConnection
from tests.e2e.produce_requests import batch, fetch, produce
from tests.unit.server.permissions import (
    Permissions,
    build_in_process,
    connect_as,
    put_in_force,
)
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.errors import ErrorCode
from tidelog.protocol.apis import api
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.security.acl_authorizer import AclAuthorizer
from tidelog.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from tidelog.server import audit_connections
from tidelog.server.dispatch import DECLINED
from tidelog.server.handlers.produce_again import ProduceShortcut

Scenario = Callable[[InProcessBroker, Permissions], Awaitable[None]]
SECRET = Resource(ResourceType.TOPIC, TOPIC)
MAY_READ = {(Operation.READ, SECRET)}
MAY_WRITE = {(Operation.WRITE, SECRET)}


def run(directory: Path, scenario: Scenario) -> None:
    async def play() -> None:
        settings = {"auto.create.topics.enable": "true"}
        async with InProcessBroker(directory, settings) as broker:
            permissions = Permissions()
            put_in_force(permissions, broker)
            await build_in_process(broker)
            await scenario(broker, permissions)

    asyncio.run(asyncio.wait_for(play(), 60))


async def produced(client: RawConnection) -> int:
    answer = await client.call("Produce", 9, produce(TOPIC, batch([b"value"])))
    return int(answer.responses[0].partition_responses[0].error_code)


def test_a_removed_permission_stops_the_next_produce_on_the_short_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    serve = ProduceShortcut.serve

    def watched(shortcut: ProduceShortcut, frame: memoryview, connection: Any) -> Any:
        result = serve(shortcut, frame, connection)
        taken.append(result is not DECLINED)
        return result

    async def scenario(broker: InProcessBroker, permissions: Permissions) -> None:
        monkeypatch.setattr(ProduceShortcut, "serve", watched)
        client = connect_as("alice", broker)
        permissions.granted = MAY_WRITE
        assert [await produced(client) for _ in range(3)] == [0, 0, 0]
        assert taken[-2:] == [True, True]
        permissions.granted = MAY_READ
        assert await produced(client) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not taken[-1]
        permissions.granted = MAY_WRITE
        assert await produced(client) == 0
        assert taken[-1]

    run(tmp_path, scenario)


class Session:
    """A consumer that fetches in a session, from the start of the topic on."""

    def __init__(self, client: RawConnection) -> None:
        self._client = client
        self._id = self._epoch = 0
        self._offset = 0

    async def fetch(self, max_wait_ms: int = 0) -> Any:
        """What the answer says of the partition; None where it says nothing."""
        request = self._request(max_wait_ms)
        answer = await self._client.call("Fetch", 11, request)
        assert not answer.error_code
        self._id, self._epoch = answer.session_id, self._epoch + 1
        return answer.responses[0].partitions[0] if answer.responses else None

    def _request(self, max_wait_ms: int) -> FetchRequest:
        request = fetch(TOPIC, 1, max_wait_ms=max_wait_ms)
        request.session_id, request.session_epoch = self._id, self._epoch
        if self._epoch:
            request.topics = []
        return request


def test_a_fetch_session_hears_of_a_removed_permission_before_there_are_records(
    tmp_path: Path,
) -> None:
    async def scenario(broker: InProcessBroker, permissions: Permissions) -> None:
        permissions.granted = MAY_READ
        session = Session(connect_as("alice", broker))
        assert (await session.fetch()).error_code == 0
        assert await session.fetch() is None
        permissions.granted = MAY_WRITE
        assert (await session.fetch()).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        permissions.granted = set(MAY_READ)
        assert (await session.fetch()).error_code == 0
        assert await session.fetch() is None

    run(tmp_path, scenario)


def test_a_waiting_fetch_gets_no_record_after_its_permission_is_gone(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, permissions: Permissions) -> None:
        permissions.granted = MAY_READ | MAY_WRITE
        session = Session(connect_as("alice", broker))
        await session.fetch()
        waits = asyncio.ensure_future(session.fetch(max_wait_ms=60_000))
        await asyncio.sleep(0)
        permissions.granted = set(MAY_WRITE)
        assert await produced(connect_as("bob", broker)) == 0
        heard = await waits
        assert heard.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not heard.records

    run(tmp_path, scenario)


def test_clients_cannot_write_to_internal_topics_or_delete_them(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, permissions: Permissions) -> None:
        permissions.granted_kinds = set(ResourceType)
        client = connect_as("root", broker)
        answer = await client.call("Produce", 9, produce(OFFSETS_TOPIC, batch([b"forged"])))
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
        answer = await client.call(
            "DeleteTopics", 5, DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC])
        )
        assert answer.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_topics=[AddPartitionsToTxnTopic(OFFSETS_TOPIC, [0])],
        )
        answer = await client.call("AddPartitionsToTxn", 3, add)
        (partition,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert partition.partition_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert OFFSETS_TOPIC in broker.parts.requests.metadata.image.topics

    run(tmp_path, scenario)


def test_a_super_user_is_not_a_broker(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, _: Permissions) -> None:
        root = frozenset({"User:root"})
        put_in_force(AclAuthorizer(frozenset, root, allow_without_acl=True), broker)
        client = connect_as("root", broker)
        assert await produced(client) == 0
        request = fetch(TOPIC)
        request.replica_id = 2
        answer = await client.call("Fetch", 11, request)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(tmp_path, scenario)


def test_a_missing_topic_is_created_with_create_on_it_or_on_the_cluster(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, permissions: Permissions) -> None:
        async def code(user: str, name: str) -> int:
            asked = MetadataRequest([MetadataRequestTopic(name=name)], True)
            answer = await connect_as(user, broker).call("Metadata", 9, asked)
            return int(answer.topics[0].error_code)

        names = ("one", "two")
        describe = {(Operation.DESCRIBE, Resource(ResourceType.TOPIC, name)) for name in names}
        permissions.granted = describe
        assert await code("alice", "one") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "one" not in broker.parts.requests.metadata.image.topics
        permissions.granted = {*describe, (Operation.CREATE, Resource(ResourceType.TOPIC, "one"))}
        assert await code("bob", "one") == ErrorCode.NONE
        assert await code("bob", "two") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        permissions.granted = {*describe, (Operation.CREATE, CLUSTER)}
        assert await code("carol", "two") == ErrorCode.NONE
        # What it may not describe it cannot have created either.
        assert await code("carol", "three") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "three" not in broker.parts.requests.metadata.image.topics

    run(tmp_path, scenario)


def test_a_pattern_of_topics_finds_those_alone_that_may_be_described(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, permissions: Permissions) -> None:
        async def assigned(member: str) -> set[str]:
            names = broker.parts.requests.metadata.image.topic_names
            request = ConsumerGroupHeartbeatRequest(
                group_id=f"{CONSUMERS}-{member}",
                member_id=member,
                rebalance_timeout_ms=60_000,
                subscribed_topic_regex="secret|doomed-.*",
                topic_partitions=[],
            )
            client = connect_as(member, broker)
            while True:
                answer = await client.call("ConsumerGroupHeartbeat", 1, request)
                assert not answer.error_code
                request.member_epoch = answer.member_epoch
                request.rebalance_timeout_ms = -1
                request.subscribed_topic_regex = request.topic_partitions = None
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    return {names[each.topic_id] for each in answer.assignment.topic_partitions}
                await asyncio.sleep(0)

        reads = {
            (Operation.READ, Resource(ResourceType.GROUP, f"{CONSUMERS}-{member}"))
            for member in ("alice", "bob")
        }
        permissions.granted = {*reads, (Operation.DESCRIBE, SECRET)}
        assert await assigned("alice") == {TOPIC}
        permissions.granted_kinds = {ResourceType.TOPIC}
        assert len(await assigned("bob")) > 1

    run(tmp_path, scenario)


def test_a_permission_that_another_one_stands_in_for_is_not_audited_as_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied: list[str] = []

    def recorded(context: Any, operation: Operation, resource: Resource) -> None:
        denied.append(f"{context.api.name} {operation.name} {resource.type.name}")

    async def scenario(broker: InProcessBroker, permissions: Permissions) -> None:
        monkeypatch.setattr(audit_connections, "record_denial", recorded)
        topics = broker.parts.requests.metadata.image.topics
        topic_ids = {name: topic.topic_id for name, topic in topics.items()}
        client = connect_as("alice", broker)
        permissions.granted_kinds = {ResourceType.TOPIC, ResourceType.GROUP}
        asked = 0
        for name in ("Metadata", "CreateTopics", "DeleteTopics", "OffsetForLeaderEpoch"):
            for _, request in requests(api(name), api(name).served[1], topic_ids):
                await client.call(name, api(name).served[1], request)
                asked += 1
        await client.call("InitProducerId", 4, InitProducerIdRequest(None))
        await client.call("ListGroups", 4, ListGroupsRequest())
        assert asked >= 8
        assert denied == []
        permissions.granted_kinds = set()
        await client.call("InitProducerId", 4, InitProducerIdRequest(None))
        assert denied == ["InitProducerId IDEMPOTENT_WRITE CLUSTER"]

    run(tmp_path, scenario)
