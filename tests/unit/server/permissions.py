"""An authorizer that tests write down as a set, and that remembers what it was asked."""

from __future__ import annotations

from uuid import UUID

from tests.e2e.authorization_requests import (
    CONSUMERS,
    DOOMED,
    GROUP,
    OPEN_ID,
    TOPIC,
    TRANSACTIONAL_ID,
)
from tests.e2e.in_process import InProcessBroker, RawConnection
from tests.e2e.produce_requests import batch, produce
from tidelog.model import CoordinatorType
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.security.authorizer import Operation, Principal, Resource, ResourceType

Permission = tuple[Operation, Resource]


class Permissions:
    """Clients may do what is in `granted`, and anything to what is of `granted_kinds`.

    Brokers may do everything.
    """

    def __init__(self) -> None:
        self.granted: set[Permission] = set()
        self.granted_kinds: set[ResourceType] = set()
        self.asked: list[Permission] = []

    def authorize(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        if principal.is_broker:
            return True
        self.asked.append((operation, resource))
        return resource.type in self.granted_kinds or (operation, resource) in self.granted

    def authorize_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        self.asked.append((operation, Resource(kind, "*")))
        return kind in self.granted_kinds or any(
            held is operation and resource.type is kind for held, resource in self.granted
        )


def put_in_force(permissions: Permissions, broker: InProcessBroker) -> None:
    """From now on clients of the broker may do what these permissions say."""
    object.__setattr__(broker.parts.requests, "authorizer", permissions)


def connect_as(name: str, broker: InProcessBroker) -> RawConnection:
    client = broker.connect()
    client.connection.principal = Principal(f"User:{name}", is_broker=False)
    return client


async def build(broker: InProcessBroker) -> dict[str, UUID]:
    """Create what `authorization_requests` are about; the ids of the topics."""
    admin = broker.connect()
    admin.connection.principal = Principal("User:admin", is_broker=True)
    names = [TOPIC, DOOMED.format("id"), *map(DOOMED.format, range(1, 7))]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    created = await admin.call("CreateTopics", 7, CreateTopicsRequest(topics=topics))
    await admin.call("Produce", 9, produce(TOPIC, batch([b"first"])))
    for key, kind in (
        (GROUP, CoordinatorType.GROUP),
        (TRANSACTIONAL_ID, CoordinatorType.TRANSACTION),
    ):
        await admin.call("FindCoordinator", 3, FindCoordinatorRequest(key, kind))
    partitions = [OffsetCommitRequestPartition(0, 1)]
    committed = [OffsetCommitRequestTopic(TOPIC, partitions=partitions)]
    commit = OffsetCommitRequest(GROUP, -1, "", None, -1, committed)
    (answer,) = (await admin.call("OffsetCommit", 9, commit)).topics
    assert not answer.partitions[0].error_code
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id=CONSUMERS,
        member_id="member",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    assert not (await admin.call("ConsumerGroupHeartbeat", 1, heartbeat)).error_code
    for transactional_id in (TRANSACTIONAL_ID, OPEN_ID):
        init = InitProducerIdRequest(transactional_id, 60_000)
        began = await admin.call("InitProducerId", 4, init)
        assert not began.error_code
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=OPEN_ID,
        v3_and_below_producer_id=began.producer_id,
        v3_and_below_producer_epoch=began.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, [0])],
    )
    await admin.call("AddPartitionsToTxn", 3, add)
    return {each.name: each.topic_id for each in created.topics}
