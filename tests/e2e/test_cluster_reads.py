"""Clients of three real brokers: what they are told, where they read, whom they cannot pose as.

The brokers run in this process, in racks of their own, on real sockets and one store in memory.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.produce_requests import fetch
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.config import load
from tidelog.errors import ErrorCode
from tidelog.host.host import system_host
from tidelog.protocol.apis import APIS
from tidelog.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    ProposedPartition,
    ProposedTopic,
)
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.follow_metadata import FollowMetadataRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tidelog.protocol.messages.submit_command import SubmitCommandRequest
from tidelog.server.broker import Broker
from tidelog.testing.loop_thread import LoopThread
from tidelog.testing.memory_store import MemoryTree

TOPIC = "t"
RECORDS = 50
SEQUENCES = 300


class Racks:
    """Three brokers, each with a rack and one listener for everybody."""

    def __init__(self, directory: str) -> None:
        self.loop = LoopThread("racks", asyncio.new_event_loop)
        self.brokers: list[Broker] = []
        self.loop.call(self._start(directory))

    async def _start(self, directory: str) -> None:
        tree = MemoryTree()
        for broker_id in range(3):
            settings = {
                "node.id": str(broker_id),
                "broker.rack": f"rack{broker_id}",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": os.path.join(directory, str(broker_id)),
                "offsets.topic.num.partitions": "1",
                "connections.first.byte.ms": "2000",
                "connections.frame.timeout.ms": "2000",
            }
            host = system_host(f"b{broker_id}", threads=1)
            broker = Broker(load(overrides=settings), host, connect_store=tree.connect)
            await broker.start()
            self.brokers.append(broker)

    async def _stop(self) -> None:
        for broker in self.brokers:
            await broker.stop(drain=False)

    def close(self) -> None:
        self.loop.call(self._stop())
        self.loop.close()

    @property
    def servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def client(self, broker_id: int) -> RawClient:
        return RawClient(self.brokers[broker_id].bootstrap_servers)

    def leader(self) -> int:
        state = self.brokers[0].parts.metadata.image.partition(TOPIC, 0)
        assert state is not None
        return state.leader

    def is_settled(self) -> bool:
        """All replicas are there and in sync, so nobody connects to anybody any more."""
        images = [broker.parts.metadata.image for broker in self.brokers]
        return len({each.version for each in images}) == 1 and all(
            len(broker.parts.replicas) == 2 and all(len(each.isr) == 3 for each in replicas)
            for broker in self.brokers
            for replicas in [tuple(broker.parts.replicas)]
        )

    def fetched_bytes(self, broker_id: int) -> int:
        return self.brokers[broker_id].parts.frontend.metrics.fetched_bytes


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    made = Racks(str(tmp_path_factory.mktemp("racks")))
    try:
        admin = AdminClient({"bootstrap.servers": made.servers})
        for created in admin.create_topics([NewTopic(TOPIC, 1, 3)]).values():
            created.result(timeout=20)
        producer = Producer({"bootstrap.servers": made.servers, "acks": "all"})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(30) == 0
        with made.client(0) as client:
            # The topic of offsets is created with the first group: better now than in a test.
            client.call("FindCoordinator", 3, FindCoordinatorRequest(key="readers"))
        eventually(made.is_settled)
        yield made
    finally:
        made.close()


def test_every_broker_tells_the_same_cluster_at_the_host_of_the_client(racks: Racks) -> None:
    told = set()
    asked = MetadataRequest([MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    for broker_id in range(3):
        with racks.client(broker_id) as client:
            answer = client.call("Metadata", 12, asked)
        state = answer.topics[0].partitions[0]
        brokers = tuple(sorted((each.node_id, each.host, each.port) for each in answer.brokers))
        told.add((brokers, answer.controller_id, state.leader_id, tuple(state.offline_replicas)))
    assert len(told) == 1
    ((brokers, _, _, offline),) = told
    addresses = [f"{host}:{port}" for _, host, port in brokers]
    assert addresses == [broker.bootstrap_servers for broker in racks.brokers]
    assert offline == ()


@pytest.mark.parametrize("distance", [0, 1, 2])
def test_librdkafka_reads_at_the_replica_in_its_rack(racks: Racks, distance: int) -> None:
    reader = (racks.leader() + distance) % 3
    before = racks.fetched_bytes(reader)
    consumer = Consumer(
        {
            "bootstrap.servers": racks.servers,
            "client.rack": f"rack{reader}",
            "group.id": "readers",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    seen: list[int] = []
    while len(seen) < RECORDS:
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        seen.append(int(message.value() or b""))
    consumer.close()
    assert seen == list(range(RECORDS))
    assert racks.fetched_bytes(reader) > before


def test_nobody_who_has_not_authenticated_acts_as_a_broker_on_any_of_them(racks: Racks) -> None:
    for broker_id in range(3):
        with racks.client(broker_id) as client:
            request = fetch(TOPIC)
            request.replica_id = (broker_id + 1) % 3
            answer = client.call("Fetch", 11, request)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            followed = client.call("FollowMetadata", 0, FollowMetadataRequest(timeout_ms=0))
            assert followed.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert not followed.update
            submitted = client.call("SubmitCommand", 0, SubmitCommandRequest(timeout_ms=0))
            assert submitted.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_client_that_poses_as_a_replica_moves_neither_watermark_nor_isr(racks: Racks) -> None:
    leader = racks.leader()
    partition = racks.brokers[leader].parts.replicas.find(TOPIC, 0)
    with racks.client(leader) as client:
        before = partition.high_watermark, partition.isr, partition.leader_epoch
        topic_id = partition.topic_id
        for replica, epoch in ((0, -1), (1, 2**40), (2, 0), (7, 5)):
            part = FetchPartition(
                0, partition.leader_epoch, partition.log.log_end_offset, partition_max_bytes=1
            )
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=0,
                replica_state=ReplicaState(replica, epoch),
                topics=[FetchTopic("", topic_id, [part])],
            )  # fmt: skip
            answer = client.call("Fetch", 17, request)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert (answer.session_id, answer.responses) == (0, [])
        isr = [BrokerState(leader, 1)]
        proposed = ProposedPartition(0, partition.leader_epoch, isr, 0, 0)
        asked = AlterPartitionRequest(leader, 1, [ProposedTopic(topic_id, [proposed])])
        for broker_id in range(3):
            with racks.client(broker_id) as other:
                answer = other.call("AlterPartition", 3, asked)
                assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                allocated = other.call("AllocateProducerIds", 0, AllocateProducerIdsRequest(0, 1))
                assert allocated.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                assert allocated.producer_id_len == 0
        assert (partition.high_watermark, partition.isr, partition.leader_epoch) == before


def hostile_frame(chance: random.Random, client: RawClient) -> bytes:
    """Something that a client should not send while it authenticates."""
    kind = chance.randrange(6)
    if kind == 0:
        mechanism = chance.choice(["SCRAM-SHA-512", "PLAIN", "", "x" * 100])
        return client.encode("SaslHandshake", chance.randrange(2), SaslHandshakeRequest(mechanism))
    if kind in (1, 2):
        token = chance.choice(
            [
                b"",
                b"n,,n=__broker,r=nonce",
                b"n,,n=nobody,r=nonce",
                b"y,,n=__broker,r=" + b"x" * 5000,
                b"c=biws,r=nonce,p=" + b"A" * 88,
                b"v=" + b"A" * 88,
                chance.randbytes(chance.randrange(200)),
            ]
        )
        return client.encode(
            "SaslAuthenticate", chance.randrange(3), SaslAuthenticateRequest(token)
        )
    if kind == 3:
        other = chance.choice([each for each in APIS if each.name != "Produce"])
        body = chance.randbytes(chance.randrange(50))
        head = struct.pack(">hhih", other.key, other.served[1], 1, -1)
        return struct.pack(">i", len(head) + len(body)) + head + body
    if kind == 4:
        return struct.pack(">i", chance.choice([-1, 0, 1, 65_537, 1 << 30]))
    return chance.randbytes(chance.randrange(1, 100))


def test_no_sequence_of_sasl_requests_gets_in_or_harms_the_broker(racks: Racks) -> None:
    chance = random.Random(12)
    tried = 0
    for number in range(SEQUENCES):
        broker_id = number % 3
        client = racks.client(broker_id)
        client.socket.settimeout(0.05)
        with suppress(OSError):
            for _ in range(chance.randrange(1, 6)):
                client.socket.sendall(hostile_frame(chance, client))
            tried += 1
            client.socket.recv(1 << 16)
        with suppress(OSError, struct.error, KeyError):
            # Whatever was said before: what only a broker may ask is not answered to this one.
            request = FollowMetadataRequest(timeout_ms=0)
            client.socket.sendall(client.encode("FollowMetadata", 0, request))
            assert b'"image"' not in client.socket.recv(1 << 16)
        host, port = client.socket.getsockname()
        assert f"{host}:{port}" not in authenticated(racks.brokers[broker_id])
        client.close()
    assert any(authenticated(broker) for broker in racks.brokers), "brokers have"
    assert tried > SEQUENCES // 2
    for broker_id in range(3):
        with racks.client(broker_id) as client:
            assert client.call("Metadata", 9, MetadataRequest(topics=[])).brokers


def authenticated(broker: Broker) -> set[str]:
    """The peers that have proved to be brokers."""
    return {
        connection.peer
        for listener in broker.parts.listeners
        for connection in tuple(listener.connections)
        if connection.is_authenticated
    }


def test_half_open_connections_go_and_leave_room(racks: Racks) -> None:
    opened = []
    for _ in range(20):
        client = racks.client(0)
        handshake = client.encode("SaslHandshake", 1, SaslHandshakeRequest("SCRAM-SHA-512"))
        client.socket.sendall(handshake[: len(handshake) // 2])
        opened.append(client)
    try:
        assert all(each.is_closed() for each in opened)
    finally:
        for each in opened:
            each.close()
    with racks.client(0) as client:
        assert client.call("Metadata", 9, MetadataRequest(topics=[])).brokers
