"""Client quotas on a running broker: produces, fetches, topics, and what real clients see."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, ThrottleEvent

from tests.e2e.in_process import InProcessBroker
from tests.e2e.produce_requests import batch, fetch, produce, values_in
from tidelog.cluster.commands import AlterClientQuotas
from tidelog.errors import ErrorCode
from tidelog.protocol.apis import api
from tidelog.protocol.framing import encode_request
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.security.quota_entities import QuotaEntity
from tidelog.server.parts import Parts

EVERYBODY: QuotaEntity = (("user", None),)


async def limit(parts: Parts, entity: QuotaEntity = EVERYBODY, **quotas: float | None) -> None:
    await parts.submitter.submit(AlterClientQuotas(entity, quotas))


async def ask(broker: InProcessBroker, name: str, version: int, request: object) -> Any:
    """The answer on a connection of its own, which may be muted afterwards."""
    return await broker.connect().call(name, version, request)


def creation(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name, partitions, 1)
    return CreateTopicsRequest([topic], timeout_ms=30_000)


def test_a_produce_beyond_its_quota_is_appended_and_waits_on_the_short_way_too(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with InProcessBroker(tmp_path) as broker:
            await ask(broker, "CreateTopics", 7, creation("t", 1))
            plain = broker.connect()
            requests = produce("t", batch([b"x" * 1_000]), acks=1)
            size = len(plain.encode("Produce", 9, requests))
            # The second begins like the first, and is not decoded again.
            for _ in range(2):
                answer = await plain.call("Produce", 9, requests)
                assert answer.throttle_time_ms == 0
            await limit(broker.parts, producer_byte_rate=size // 10 + 1)
            told = [(await plain.call("Produce", 9, requests)).throttle_time_ms]
            assert not plain.connection.is_muted, "as much as all windows allow"
            for version in (9, 3):
                await limit(broker.parts, producer_byte_rate=size // 10 + 1)
                again = broker.connect()
                again.connection.known = dict(plain.connection.known)
                answer = await again.call("Produce", version, requests)
                told.append(answer.throttle_time_ms)
                partition = answer.responses[0].partition_responses[0]
                assert partition.error_code == 0 and partition.base_offset == len(told) + 1
                assert again.connection.is_muted
            # Twice as much as allowed in ten seconds: ten seconds; then once more.
            assert told[0] == 0 and 9_000 < told[1] <= 10_000 and told[2] > 15_000

    asyncio.run(run())


def test_a_fetch_beyond_its_quota_gets_nothing_and_its_session_stays_as_it_was(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with InProcessBroker(tmp_path) as broker:
            await ask(broker, "CreateTopics", 7, creation("t", 1))
            for value in (b"a", b"b"):
                await ask(broker, "Produce", 9, produce("t", batch([value * 1_000]), acks=1))
            topics = [FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=0)])]
            topics[0].partitions[0].partition_max_bytes = 1_100
            first = await ask(
                broker, "Fetch", 11, FetchRequest(max_bytes=9_999, session_epoch=0, topics=topics)
            )
            assert values_in(first.responses[0].partitions[0]) == [b"a" * 1_000]

            async def go_on(epoch: int) -> Any:
                topics[0].partitions[0].fetch_offset = 1
                request = FetchRequest(
                    max_bytes=9_999, session_id=first.session_id, session_epoch=epoch, topics=topics
                )
                return await ask(broker, "Fetch", 11, request)

            await limit(broker.parts, consumer_byte_rate=120)
            second = await go_on(1)
            assert values_in(second.responses[0].partitions[0]) == [b"b" * 1_000]
            third = await go_on(2)
            assert third.responses == [] and third.throttle_time_ms > 0
            assert (third.error_code, third.session_id) == (0, first.session_id)
            # A session that begins with a fetch like that does not begin.
            fourth = await ask(
                broker, "Fetch", 11, FetchRequest(max_bytes=9_999, session_epoch=0, topics=topics)
            )
            assert (fourth.responses, fourth.session_id) == ([], 0) and fourth.throttle_time_ms > 0
            await limit(broker.parts, consumer_byte_rate=None)
            fifth = await go_on(3)
            assert values_in(fifth.responses[0].partitions[0]) == [b"b" * 1_000]
            assert fifth.throttle_time_ms == 0

    asyncio.run(run())


def test_a_batch_larger_than_all_windows_allow_is_given_and_paid_for_afterwards(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with InProcessBroker(tmp_path) as broker:
            await ask(broker, "CreateTopics", 7, creation("t", 1))
            await ask(broker, "Produce", 9, produce("t", batch([b"x" * 5_000]), acks=1))
            await limit(broker.parts, consumer_byte_rate=10)
            answer = await ask(broker, "Fetch", 11, fetch("t"))
            assert values_in(answer.responses[0].partitions[0]) == [b"x" * 5_000]
            assert answer.throttle_time_ms > 400_000

    asyncio.run(run())


def test_topics_beyond_the_quota_are_refused_and_older_clients_wait(tmp_path: Path) -> None:
    async def run() -> None:
        async with InProcessBroker(tmp_path) as broker:
            await limit(broker.parts, controller_mutation_rate=1)
            answer = await ask(broker, "CreateTopics", 7, creation("a", 20))
            assert answer.topics[0].error_code == 0 and answer.throttle_time_ms == 0
            answer = await ask(broker, "CreateTopics", 7, creation("b", 1))
            assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert 0 < answer.throttle_time_ms <= 9_000
            assert "try again in" in answer.topics[0].error_message
            deletion = DeleteTopicsRequest([DeleteTopicState("a")], timeout_ms=30_000)
            answer = await ask(broker, "DeleteTopics", 6, deletion)
            assert answer.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            connection = broker.connect()
            answer = await connection.call("CreateTopics", 5, creation("b", 1))
            assert answer.topics[0].error_code == 0 and answer.throttle_time_ms > 0
            assert connection.connection.is_muted
            assert set(broker.parts.metadata.image.topics) == {"a", "b"}

    asyncio.run(run())


def test_requests_that_keep_the_broker_busy_wait_for_a_window_at_most(tmp_path: Path) -> None:
    async def run() -> None:
        async with InProcessBroker(tmp_path) as broker:
            before = broker.connect()
            await limit(broker.parts, request_percentage=0.000001)
            # A connection that was there before is timed as well; so are the steps of a task.
            for name, version, request in (
                ("Metadata", 12, MetadataRequest([])),
                ("CreateTopics", 7, creation("t", 1)),
                ("Produce", 9, produce("t", batch([b"x"]), acks=1)),
                ("Fetch", 11, fetch("t")),
            ):
                connection = before if name == "Metadata" else broker.connect()
                answer = await connection.call(name, version, request)
                assert answer.throttle_time_ms == 1_000, name
                assert connection.connection.is_muted
                if name == "Fetch":
                    assert answer.responses == []
            await limit(broker.parts, request_percentage=100)
            assert (await ask(broker, "Metadata", 12, MetadataRequest([]))).throttle_time_ms == 0

    asyncio.run(run())


def test_an_address_that_opens_connections_too_fast_is_not_served(tmp_path: Path) -> None:
    async def is_answered(port: int) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        parts = encode_request(api("ApiVersions"), 0, 1, "raw", ApiVersionsRequest())
        writer.writelines(bytes(part) for part in parts)  # type: ignore[arg-type]
        try:
            return await reader.read(1) != b""
        except ConnectionResetError:
            # Closed with what was sent still unread.
            return False
        finally:
            writer.close()

    async def run() -> None:
        async with InProcessBroker(tmp_path) as broker:
            here: QuotaEntity = (("ip", "127.0.0.1"),)
            await limit(broker.parts, here, connection_creation_rate=1)
            port = broker.parts.listeners[0].port
            answered = await asyncio.gather(*(is_answered(port) for _ in range(15)))
            # Ten windows' worth at once, and perhaps one more for a second that has begun.
            assert 10 <= sum(answered) <= 12
            assert broker.parts.requests.throttling.throttled.connections == answered.count(False)
            await limit(broker.parts, here, connection_creation_rate=None)
            assert await is_answered(port)

    asyncio.run(run())


def test_confluent_kafka_sees_how_long_it_is_throttled(tmp_path: Path) -> None:
    events: list[ThrottleEvent] = []

    def send(servers: str) -> None:
        settings = {
            "bootstrap.servers": servers,
            "client.id": "noisy",
            "throttle_cb": events.append,
        }
        producer = Producer({**settings, "linger.ms": 0})
        for _ in range(3):
            producer.produce("t", b"x" * 3_000)
            assert producer.flush(30) == 0
        producer.poll(1)

    async def run() -> str:
        async with InProcessBroker(tmp_path) as broker:
            await ask(broker, "CreateTopics", 7, creation("t", 1))
            entity: QuotaEntity = (("client-id", "noisy"),)
            await limit(broker.parts, entity, producer_byte_rate=880)
            servers = f"127.0.0.1:{broker.parts.listeners[0].port}"
            await asyncio.to_thread(send, servers)
            return "\n".join(broker.parts.requests.throttling.lines())

    metrics = asyncio.run(run())
    assert events and events[0].broker_name.startswith("127.0.0.1")
    assert 0 < max(event.throttle_time for event in events) < 10
    assert 'tidelog_throttled_answers_total{quota="producer_byte_rate"} 1' in metrics
