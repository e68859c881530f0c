"""What three brokers answer about replicas and leaders: before and after one of them is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from tests.e2e.answers_script import MASKED, Script
from tests.e2e.produce_requests import batch, produce
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest
from tidelog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tidelog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

ANSWERS_MIN = 120
LOST = 2
# By name: the brokers of each partition, and the least that acks=all needs.
TOPICS: dict[str, tuple[list[list[int]], int]] = {
    "triple": ([[0, 1, 2], [1, 2, 0], [2, 0, 1]], 1),
    "pair": ([[0, 2], [2, 1]], 2),
    "lone": ([[2], [0]], 1),
}
PREFERRED, UNCLEAN = 0, 1
# Beside what is drawn: in KRaft any broker is named as the controller.
_MASKED_HERE = {"controller_id": -1}


class Cluster:
    """The brokers of one kind, asked step by step."""

    def __init__(self, servers: Sequence[str], lose: Callable[[int], None]) -> None:
        self._servers = servers
        self.lose = lose
        self.clients = {broker: RawClient(each) for broker, each in enumerate(servers)}
        self.script = Script(self.clients[0])
        self.phase = "whole"

    def ask(self, label: str, name: str, version: int, request: object, broker: int = 0) -> Any:
        self.script.client = self.clients[broker]
        return self.script.ask(f"{self.phase}, {label}", name, version, request)

    def call(self, name: str, version: int, request: object) -> Any:
        return self.clients[0].call(name, version, request)

    def close(self) -> None:
        for each in self.clients.values():
            each.close()

    def states(self, topic: str, broker: int = 0) -> list[Any]:
        request = MetadataRequest([MetadataRequestTopic(name=topic)], False)
        answer = self.clients[broker].call("Metadata", 12, request).topics[0]
        return sorted(answer.partitions, key=lambda each: each.partition_index)

    def topic_id(self, topic: str) -> UUID:
        request = MetadataRequest([MetadataRequestTopic(name=topic)], False)
        found: UUID = self.call("Metadata", 12, request).topics[0].topic_id
        return found


def play(servers: Sequence[str], lose: Callable[[int], None]) -> dict[str, object]:
    cluster = Cluster(servers, lose)
    before = {name: MASKED.get(name) for name in _MASKED_HERE}
    MASKED.update(_MASKED_HERE)
    try:
        create(cluster)
        for part in (moves, elections, pages, features, forgets, logs, strangers):
            part(cluster)
        lost(cluster)
        for part in (elections, pages, away, moves_to_nobody, forgets, strangers):
            part(cluster)
    finally:
        cluster.close()
        for name, value in before.items():
            if value is None:
                del MASKED[name]
    return {label: _without_words(each) for label, each in cluster.script.answers.items()}


def _without_words(value: object) -> object:
    """Some have words where there is no error, and some an empty text."""
    if isinstance(value, dict):
        return {
            name: _without_words(each) for name, each in value.items() if name != "error_message"
        }
    return [_without_words(each) for each in value] if isinstance(value, list) else value


def create(cluster: Cluster) -> None:
    made = [
        CreatableTopic(
            name, -1, -1,
            [CreatableReplicaAssignment(index, each) for index, each in enumerate(assigned)],
            [CreatableTopicConfig("min.insync.replicas", str(least))],
        )
        for name, (assigned, least) in TOPICS.items()
    ]  # fmt: skip
    cluster.ask("create", "CreateTopics", 7, CreateTopicsRequest(made, 30_000, False))

    def is_whole(broker: int) -> bool:
        return all(
            [(each.leader_id, sorted(each.isr_nodes)) for each in cluster.states(name, broker)]
            == [(brokers[0], sorted(brokers)) for brokers in assigned]
            for name, (assigned, _) in TOPICS.items()
        )

    for broker in cluster.clients:
        eventually(lambda: is_whole(broker), seconds=60)  # noqa: B023
    for index in range(3):
        with RawClient(cluster._servers[index]) as client:
            sent = client.call(
                "Produce", 9, produce("triple", batch([b"a", b"b"]), partition=index)
            )
            assert sent.responses[0].partition_responses[0].error_code == 0
    cluster.ask("factor 4", "CreateTopics", 7, one_topic(CreatableTopic("four", 1, 4)))


def one_topic(topic: CreatableTopic) -> CreateTopicsRequest:
    return CreateTopicsRequest([topic], 30_000, False)


def reassigned(
    *moves: tuple[str, int, list[int] | None], may_change: bool = True
) -> AlterPartitionReassignmentsRequest:
    topics: dict[str, ReassignableTopic] = {}
    for name, index, replicas in moves:
        topic = topics.setdefault(name, ReassignableTopic(name, []))
        topic.partitions.append(ReassignablePartition(index, replicas))
    return AlterPartitionReassignmentsRequest(30_000, may_change, list(topics.values()))


def moves(cluster: Cluster) -> None:
    def ask(label: str, *wanted: tuple[str, int, list[int] | None], version: int = 1,
            may_change: bool = True) -> None:  # fmt: skip
        request = reassigned(*wanted, may_change=may_change)
        cluster.ask(label, "AlterPartitionReassignments", version, request)

    listed(cluster)
    for version in (0, 1):
        ask("nothing", version=version)
        ask("unknown topic", ("unknown", 0, [0]), version=version)
        ask("unknown partition", ("triple", 9, [0]), version=version)
        ask("negative partition", ("triple", -1, [0]), version=version)
        ask("to a stranger", ("triple", 0, [0, 9]), version=version)
        ask("to a negative broker", ("triple", 0, [0, -1]), version=version)
        ask("twice to a broker", ("triple", 0, [0, 0]), version=version)
        ask("to nobody", ("triple", 0, []), version=version)
        ask("cancelled while nothing moves", ("triple", 0, None), version=version)
        ask("cancelled, unknown", ("unknown", 0, None), ("triple", 9, None), version=version)
        ask("where it is", ("triple", 0, [0, 1, 2]), version=version)
    ask("a larger factor", ("lone", 1, [0, 1]), may_change=False)
    ask("a smaller factor", ("triple", 1, [1, 2]), may_change=False)
    ask("the same factor", ("lone", 1, [1]), may_change=False)
    eventually(lambda: cluster.states("lone")[1].leader_id == 1, seconds=30)
    ask("some of each", ("lone", 1, [0]), ("lone", 7, [0]), ("unknown", 0, [1]))
    eventually(lambda: cluster.states("lone")[1].leader_id == 0, seconds=30)
    ask("the factor raised", ("lone", 1, [0, 1]))
    eventually(lambda: len(cluster.states("lone")[1].isr_nodes) == 2, seconds=30)
    ask("another order", ("lone", 1, [1, 0]))
    eventually(lambda: cluster.states("lone")[1].replica_nodes == [1, 0], seconds=30)
    ask("and back", ("lone", 1, [0]))
    eventually(lambda: cluster.states("lone")[1].replica_nodes == [0], seconds=30)
    listed(cluster, "after all")


def listed(cluster: Cluster, when: str = "nothing moves") -> None:
    def ask(label: str, *asked: tuple[str, list[int]]) -> None:
        topics = [ListPartitionReassignmentsTopics(*each) for each in asked]
        request = ListPartitionReassignmentsRequest(30_000, topics or None)
        cluster.ask(f"{when}, {label}", "ListPartitionReassignments", 0, request)

    ask("all")
    ask("known", ("triple", [0, 1, 2]))
    ask("unknown", ("unknown", [0]), ("triple", [9, -1]))
    ask("no partitions", ("triple", []))


def elections(cluster: Cluster) -> None:
    def ask(label: str, version: int, kind: int, *asked: tuple[str, list[int]]) -> None:
        topics = [TopicPartitions(*each) for each in asked]
        request = ElectLeadersRequest(kind, topics, 30_000)
        cluster.ask(f"{label}, kind {kind}", "ElectLeaders", version, request)

    for version in (0, 1, 2):
        for kind in (PREFERRED, UNCLEAN) if version else (PREFERRED,):
            ask("led", version, kind, ("triple", [0, 1, 2]))
            ask("unknown topic", version, kind, ("unknown", [0]))
            ask("unknown partition", version, kind, ("triple", [7, -1]))
            ask("nothing", version, kind)
            ask("no partitions", version, kind, ("triple", []))
            ask("of one replica", version, kind, ("lone", [0]))
            request = ElectLeadersRequest(kind, None, 30_000)
            cluster.ask(f"all, kind {kind}", "ElectLeaders", version, request)
    ask("mixed", 2, PREFERRED, ("triple", [2, 5]), ("lone", [0, 1]), ("unknown", [0]))


def pages(cluster: Cluster) -> None:
    def ask(label: str, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> None:
        request = DescribeTopicPartitionsRequest(
            [TopicRequest(each) for each in names], limit, cursor
        )
        cluster.ask(label, "DescribeTopicPartitions", 0, request)

    ask("all")
    ask("one", "triple")
    ask("several", "pair", "lone", "triple")
    ask("unknown", "unknown", "triple")
    ask("bad name", "a/b")
    ask("twice", "triple", "triple")
    for limit in (1, 2, 3, 4, 6, 0, -1):
        ask(f"limit {limit}", limit=limit)
    ask("named, limit 4", "lone", "pair", "triple", limit=4)
    ask("from a cursor", cursor=Cursor("pair", 1))
    ask("from a cursor, limit 2", cursor=Cursor("pair", 1), limit=2)
    ask("from a topic that is gone", cursor=Cursor("nobody", 3))
    ask("from a partition that is gone", cursor=Cursor("pair", 9))
    ask("beyond all", cursor=Cursor("zzz", 0))
    ask("a negative cursor", "pair", cursor=Cursor("pair", -1))
    ask("a cursor before what is named", "triple", cursor=Cursor("lone", 1))
    ask("a cursor behind what is named", "lone", cursor=Cursor("triple", 0))


def features(cluster: Cluster) -> None:
    def ask(label: str, version: int, *updates: tuple[str, int, int], dry: bool = False) -> None:
        keys = [
            FeatureUpdateKey(name, level, kind != 1 and version == 0, kind if version else 1)
            for name, level, kind in updates
        ]
        request = UpdateFeaturesRequest(30_000, keys, dry and version > 0)
        cluster.ask(label, "UpdateFeatures", version, request)

    for version in (0, 1, 2):
        ask("nothing", version)
        ask("unknown", version, ("no.such", 1, 1))
        ask("unknown, removed", version, ("no.such", 0, 2))
        ask("as it is", version, ("group.version", 1, 1))
        ask("too high", version, ("group.version", 99, 1))
        ask("negative", version, ("group.version", -1, 1))
        ask("too high, beside one that is as it is", version,
            ("group.version", 1, 1), ("metadata.version", 99, 1))  # fmt: skip
        ask("lower", version, ("metadata.version", 20, 1))
    for version in (1, 2):
        ask("dry", version, ("group.version", 1, 1), dry=True)
        ask("dry, too high", version, ("group.version", 99, 1), dry=True)
        ask("no such kind", version, ("group.version", 1, 7))


def forgets(cluster: Cluster) -> None:
    for broker in (9, -1):
        request = UnregisterBrokerRequest(broker)
        cluster.ask(f"broker {broker}", "UnregisterBroker", 0, request)


def logs(cluster: Cluster) -> None:
    for broker in (0, 1):
        topics = [DescribableLogDirTopic("triple", [0, 1, 2]), DescribableLogDirTopic("pair", [0])]
        request = DescribeLogDirsRequest(topics)
        cluster.ask(f"of broker {broker}", "DescribeLogDirs", 5, request, broker)
    moved = AlterReplicaLogDirTopic("triple", [0, 9])
    for version in (1, 2):
        request = AlterReplicaLogDirsRequest([AlterReplicaLogDir("/nowhere", [moved])])
        cluster.ask("elsewhere", "AlterReplicaLogDirs", version, request)
        cluster.ask("nothing", "AlterReplicaLogDirs", version, AlterReplicaLogDirsRequest([]))


def strangers(cluster: Cluster) -> None:
    """Requests to a broker that does not lead, and to one that does in another epoch."""
    broker = 1
    ids = {name: cluster.topic_id(name) for name in TOPICS}
    places = (("triple", 0), ("lone", 1), ("triple", 9))
    for topic, index in places:
        for version in (9, 10, 12, 13):
            data = PartitionProduceData(index, batch([b"x"]))
            name = topic if version < 13 else ""
            request = ProduceRequest(
                acks=-1,
                timeout_ms=5_000,
                topic_data=[TopicProduceData(name, ids[topic], [data])],
            )
            cluster.ask(f"{topic}-{index}", "Produce", version, request, broker)
        for version, epoch in ((12, -1), (15, -1), (16, -1), (17, -1), (17, 99), (17, 0)):
            part = FetchPartition(index, epoch, 0, partition_max_bytes=1 << 20)
            name = topic if version < 13 else ""
            fetching = FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=0, session_epoch=-1,
                topics=[FetchTopic(name, ids[topic], [part])],
            )  # fmt: skip
            cluster.ask(f"{topic}-{index} epoch {epoch}", "Fetch", version, fetching, broker)
        asked = ListOffsetsPartition(partition_index=index, timestamp=-1)
        listing = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [asked])])
        cluster.ask(f"{topic}-{index}", "ListOffsets", 11, listing, broker)
        ends = OffsetForLeaderPartition(index, -1, 0)
        ending = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [ends])])
        cluster.ask(f"{topic}-{index}", "OffsetForLeaderEpoch", 4, ending, broker)
        removed = DeleteRecordsPartition(index, 0)
        removal = DeleteRecordsRequest([DeleteRecordsTopic(topic, [removed])], 5_000)
        cluster.ask(f"{topic}-{index}", "DeleteRecords", 2, removal, broker)


def lost(cluster: Cluster) -> None:
    cluster.lose(LOST)
    cluster.clients.pop(LOST).close()
    cluster.phase = "one lost"

    def is_missed(broker: int) -> bool:
        with suppress(OSError):
            states = [each for name in TOPICS for each in cluster.states(name, broker)]
            return all(each.leader_id != LOST for each in states) and all(
                LOST not in each.isr_nodes for each in states if len(each.replica_nodes) == 3
            )
        return False

    for broker in cluster.clients:
        eventually(lambda: is_missed(broker), seconds=60)  # noqa: B023


def away(cluster: Cluster) -> None:
    for version in (0, 1, 2):
        for fenced in (False, True) if version == 2 else (False,):
            request = DescribeClusterRequest(False, 1, fenced)
            cluster.ask(f"fenced {fenced}", "DescribeCluster", version, request)
    for name in TOPICS:
        for version in (1, 4, 5, 6, 9, 13):
            asked = MetadataRequest([MetadataRequestTopic(name=name)], version < 4)
            cluster.ask(name, "Metadata", version, asked)

    def ask(label: str, topic: CreatableTopic) -> None:
        request = CreateTopicsRequest([topic], 30_000, True)
        cluster.ask(label, "CreateTopics", 4, request)

    ask("factor 3", CreatableTopic("three", 1, 3))
    ask("factor 2", CreatableTopic("two", 1, 2))
    ask("at who is lost", CreatableTopic("at", -1, -1, [CreatableReplicaAssignment(0, [LOST])]))
    ask("partly at who is lost",
        CreatableTopic("at", -1, -1, [CreatableReplicaAssignment(0, [0, LOST])]))  # fmt: skip
    for label, brokers in (("at who is lost", [0, 1, LOST]), ("at too few", [0, 1])):
        grown = CreatePartitionsTopic("triple", 4, [CreatePartitionsAssignment(brokers)])
        cluster.ask(label, "CreatePartitions", 3, CreatePartitionsRequest([grown], 30_000, True))
    grown = CreatePartitionsTopic("triple", 4, None)
    cluster.ask("anywhere", "CreatePartitions", 3, CreatePartitionsRequest([grown], 30_000, True))


def moves_to_nobody(cluster: Cluster) -> None:
    """A move that cannot end: shown, changed and stopped."""

    def ask(label: str, *wanted: tuple[str, int, list[int] | None]) -> None:
        cluster.ask(label, "AlterPartitionReassignments", 1, reassigned(*wanted))

    ask("to who is lost", ("lone", 1, [0, LOST]))
    listed(cluster, "to who is lost")
    ask("stopped", ("lone", 1, None), ("triple", 0, None))
    listed(cluster, "stopped")
    ask("away from who is lost", ("triple", 0, [0, 1]))
    eventually(lambda: cluster.states("triple")[0].replica_nodes == [0, 1], seconds=30)
    listed(cluster, "away")
    ask("of what nobody leads", ("lone", 0, [0]))
    listed(cluster, "of what nobody leads")
    ask("of what nobody leads, stopped", ("lone", 0, None))
