"""How much of everything a client may create, and what it is told beyond that."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path
from typing import Any

from tests.e2e.in_process import InProcessBroker
from tests.e2e.produce_requests import batch, produce
from tidelog.coordinators.shares import Shares
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

# The topics of the coordinators count as well, and have one partition each here.
from tidelog.security.authorizer import Principal

SETTINGS = {
    "cluster.topics.max": "4",
    "cluster.partitions.max": "8",
    "groups.max.per.partition": "2",
    "transactional.ids.max.per.partition": "2",
    "producer.ids.max.per.partition": "3",
    "transaction.state.log.num.partitions": "1",
}
IDS = 1_000_000 if os.environ.get("TIDELOG_LONG") else 2_000


async def ask(
    broker: InProcessBroker, name: str, version: int, request: object, user: str = ""
) -> Any:
    """The answer, once the coordinator it may need is there."""
    busy = {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
    while True:
        client = broker.connect()
        if user:
            client.connection.principal = Principal(f"User:{user}", is_broker=False)
        answer = await client.call(name, version, request)
        if getattr(answer, "error_code", 0) not in busy:
            return answer
        await asyncio.sleep(0.01)


async def create(broker: InProcessBroker, name: str, partitions: int) -> tuple[int, str | None]:
    request = CreateTopicsRequest([CreatableTopic(name, partitions, 1)], timeout_ms=30_000)
    result = (await ask(broker, "CreateTopics", 7, request)).topics[0]
    return result.error_code, result.error_message


async def join(broker: InProcessBroker, group: str, user: str = "") -> int:
    protocol = JoinGroupRequestProtocol("range", b"")
    request = JoinGroupRequest(group, 6_000, 6_000, "", None, "consumer", [protocol])
    # In this version the first answer names the member, and the second is the one that joins.
    code: int = (await ask(broker, "JoinGroup", 3, request, user)).error_code
    return code


def test_what_a_client_may_create_is_bounded(tmp_path: Path) -> None:
    async def run() -> None:
        async with InProcessBroker(tmp_path, SETTINGS) as broker:
            assert (await create(broker, "t", 3))[0] == 0
            for kind in (0, 1):
                await ask(broker, "FindCoordinator", 3, FindCoordinatorRequest("a", kind))
            assert await join(broker, "a") == await join(broker, "b") == 0
            assert await join(broker, "c") == ErrorCode.GROUP_MAX_SIZE_REACHED
            partition = OffsetCommitRequestPartition(0, 0)
            topics = [OffsetCommitRequestTopic("t", partitions=[partition])]
            commit = OffsetCommitRequest("d", topics=topics)
            committed = await ask(broker, "OffsetCommit", 2, commit)
            result = committed.topics[0].partitions[0]
            assert result.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED

            codes = []
            for name in ("x", "y", "z", "x"):
                request = InitProducerIdRequest(name, 10_000)
                codes.append((await ask(broker, "InitProducerId", 4, request)).error_code)
            assert codes == [0, 0, ErrorCode.POLICY_VIOLATION, 0]

            code, text = await create(broker, "u", 9)
            assert code == ErrorCode.POLICY_VIOLATION and "cluster.partitions.max" in str(text)
            grown = CreatePartitionsRequest([CreatePartitionsTopic("t", 12, None)], 30_000)
            answer = await ask(broker, "CreatePartitions", 3, grown)
            assert answer.results[0].error_code == ErrorCode.POLICY_VIOLATION
            assert (await create(broker, "u", 1))[0] == 0
            code, text = await create(broker, "v", 1)
            assert code == ErrorCode.POLICY_VIOLATION and "cluster.topics.max" in str(text)

            codes = []
            for producer_id in (1, 2, 3, 4, 1):
                # The last one goes on where the first has ended.
                sequence = 1 if len(codes) == 4 else 0
                records = batch(
                    [b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
                )
                answer = await ask(broker, "Produce", 9, produce("t", records))
                codes.append(answer.responses[0].partition_responses[0].error_code)
            assert codes == [0, 0, 0, ErrorCode.POLICY_VIOLATION, 0]

    asyncio.run(run())


def test_x28_a_user_cannot_use_up_the_room_of_others(tmp_path: Path) -> None:
    settings = {
        "groups.max.per.user": "2",
        "transactional.ids.max.per.user": "2",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
    }

    async def run() -> None:
        async with InProcessBroker(tmp_path, settings) as broker:
            for kind in (0, 1):
                await ask(broker, "FindCoordinator", 3, FindCoordinatorRequest("a", kind))
            full = ErrorCode.GROUP_MAX_SIZE_REACHED
            codes = [await join(broker, group, "alice") for group in ("a", "b", "c", "a")]
            assert codes == [0, 0, full, 0]
            assert await join(broker, "c", "bob") == await join(broker, "c", "alice") == 0
            assert [await join(broker, group) for group in ("e", "f", "g")] == [0, 0, 0]
            partition = OffsetCommitRequestPartition(0, 0)
            topics = [OffsetCommitRequestTopic("t", partitions=[partition])]
            assert (await create(broker, "t", 1))[0] == 0
            commit = OffsetCommitRequest("h", topics=topics)
            for user, code in (("alice", full), ("carol", 0)):
                committed = await ask(broker, "OffsetCommit", 2, commit, user)
                assert committed.topics[0].partitions[0].error_code == code

            codes = []
            for user, name in (("alice", "x"), ("alice", "y"), ("alice", "z"), ("bob", "z")):
                request = InitProducerIdRequest(name, 10_000)
                codes.append((await ask(broker, "InitProducerId", 4, request, user)).error_code)
            assert codes == [0, 0, ErrorCode.POLICY_VIOLATION, 0]

    asyncio.run(run())


def test_x28_names_that_are_gone_make_room_for_others() -> None:
    there = {"a", "b"}
    shares = Shares(there.__contains__)
    assert [shares.take("alice", name, 2) for name in ("a", "b", "c")] == [True, True, False]
    there.remove("a")
    there.add("c")
    assert shares.take("alice", "c", 2) and not shares.take("alice", "d", 2)
    for number in range(20_000):
        assert shares.take(f"user-{number}", "a", 2)
    assert len(shares._names) <= 10_001


def test_producer_ids_that_nobody_uses_cost_no_memory(tmp_path: Path) -> None:
    def used_kib() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def run() -> tuple[int, int]:
        async with InProcessBroker(tmp_path) as broker:
            client, given = broker.connect(), set()
            frame = client.encode("InitProducerId", 4, InitProducerIdRequest(None, 0))
            for _ in range(IDS // 10):
                await client.ask(frame)
            before = used_kib()
            for number in range(IDS - IDS // 10):
                await client.ask(frame)
                if number % 100 == 0:
                    answer = client.decode("InitProducerId", 4)
                    assert answer.error_code == 0
                    given.add(answer.producer_id)
            return len(given), used_kib() - before

    distinct, grown_kib = asyncio.run(run())
    assert distinct == (IDS - IDS // 10) // 100
    assert grown_kib < 16 * 1024
