"""Requests with the answers that a client sees plainly: what succeeds, and what is refused."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

from tests.e2e.produce_requests import batch, produce
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.errors import ErrorCode
from tidelog.model import CoordinatorType, ListedOffset
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
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
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

ANSWERS_MIN = 190
NO_ID = UUID(int=0)
UNKNOWN_ID = UUID(int=77)
# What is drawn, measured or a matter of where the broker runs. Settings have tests of their own.
MASKED = {
    "throttle_time_ms": "",
    "topic_id": NO_ID,
    "cluster_id": "",
    "host": "",
    "port": -1,
    "producer_id": -1,
    "leader_epoch": -1,
    "timestamp": -1,
    "log_append_time_ms": -1,
    "transaction_start_time_ms": -1,
    "session_id": 0,
    "configs": (),
    "log_dir": "",
    "total_bytes": -1,
    "usable_bytes": -1,
}


class Script:
    """One broker, asked step by step; `answers` is what it said."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.answers: dict[str, object] = {}

    def ask(self, label: str, name: str, version: int, request: object) -> Any:
        answer = self.client.call(name, version, request)
        label = f"{name} {version}: {label}"
        assert label not in self.answers
        self.answers[label] = shown(answer)
        return answer

    def await_topic(self, name: str, partitions: int) -> Any:
        """Until the broker serves what was created; the topic as Metadata has it."""
        request = MetadataRequest([MetadataRequestTopic(name=name)], False)

        def described() -> Any:
            return self.client.call("Metadata", 12, request).topics[0]

        eventually(
            lambda: sum(each.leader_id >= 0 for each in described().partitions) == partitions,
            seconds=30,
        )
        return described()

    def await_gone(self, name: str) -> None:
        request = MetadataRequest([MetadataRequestTopic(name=name)], False)
        eventually(
            lambda: self.client.call("Metadata", 12, request).topics[0].error_code != 0, seconds=30
        )


def shown(value: Any, name: str = "") -> object:
    """A message as plain values, without what differs from run to run; lists in one order."""
    if name in MASKED:
        return "none" if value == MASKED[name] else "some"
    if name == "error_code":
        return ErrorCode(value).name
    if is_dataclass(value):
        made = {each.name: shown(getattr(value, each.name), each.name) for each in fields(value)}
        if made.get("error_code", "NONE") != "NONE":
            # The words are ours, and where Kafka has none there may be some.
            made.pop("error_message", None)
        return made
    if isinstance(value, list):
        return sorted((shown(each) for each in value), key=repr)
    if isinstance(value, (bytes, memoryview)):
        return len(value)
    return value


def play(client: RawClient) -> dict[str, object]:
    script = Script(client)
    for part in (create, extend, look, records, read_errors, write_errors, groups, delete):
        part(script)
    return script.answers


def create(script: Script) -> None:
    def ask(label: str, *topics: CreatableTopic, dry: bool = False, version: int = 7) -> None:
        request = CreateTopicsRequest(list(topics), 30_000, dry)
        script.ask(label, "CreateTopics", version, request)

    def topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> CreatableTopic:
        return CreatableTopic(name, partitions, factor, **more)

    ask("two topics", topic("made", 2), topic("other"))
    ask("default counts", topic("defaults", -1, -1))
    ask("in an old version", topic("old"), version=4)
    ask("in the oldest version", topic("oldest"), version=2)
    for name, partitions in (("made", 2), ("other", 1), ("defaults", 1), ("old", 1), ("oldest", 1)):
        script.await_topic(name, partitions)
    ask("dry", topic("dry"), dry=True)
    ask("it exists", topic("made"))
    ask("it exists, dry", topic("made"), dry=True)
    ask("twice in a request", topic("twin"), topic("twin"))
    ask("beside one that is refused", topic("fine"), topic("a/b"))
    script.await_topic("fine", 1)
    for label, name in (
        ("a slash", "a/b"), ("no name", ""), ("dots", ".."), ("a dot", "."), ("long", "n" * 250),
        ("a space", "a b"),
    ):  # fmt: skip
        ask(f"name with {label}", topic(name))
    for count in (0, -2):
        ask(f"{count} partitions", topic("none", count))
    for factor in (0, 3, -2):
        ask(f"factor {factor}", topic("none", 1, factor))
    ask("unknown setting", topic("none", configs=[CreatableTopicConfig("no.such", "1")]))
    ask("bad setting", topic("none", configs=[CreatableTopicConfig("retention.ms", "x")]))
    ask("null setting", topic("none", configs=[CreatableTopicConfig("retention.ms", None)]))

    def assigned(*places: tuple[int, list[int]], partitions: int = -1) -> CreatableTopic:
        given = [CreatableReplicaAssignment(index, brokers) for index, brokers in places]
        return topic("assigned", partitions, -1, assignments=given)

    ask("assigned, with a count", assigned((0, [1]), partitions=1))
    ask("assigned to a stranger", assigned((0, [9])))
    ask("assigned with a gap", assigned((0, [1]), (2, [1])))
    ask("assigned twice to a broker", assigned((0, [1, 1])))
    ask("assigned to nobody", assigned((0, [])))
    ask("assigned", assigned((0, [1]), (1, [1])))
    script.await_topic("assigned", 2)
    ask("a name that collides", topic("as.signed"), topic("as_signed"), dry=True)
    ask("offsets topic", topic("__consumer_offsets"), dry=True)


def extend(script: Script) -> None:
    def ask(label: str, *topics: CreatePartitionsTopic, dry: bool = False) -> None:
        request = CreatePartitionsRequest(list(topics), 30_000, dry)
        script.ask(label, "CreatePartitions", 3, request)

    def topic(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
        given = [CreatePartitionsAssignment(brokers) for brokers in assignments] or None
        return CreatePartitionsTopic(name, count, given)

    ask("dry", topic("other", 3), dry=True)
    ask("one more", topic("other", 2))
    script.await_topic("other", 2)
    ask("as many", topic("other", 2))
    ask("fewer", topic("other", 1))
    ask("none", topic("other", 0))
    ask("unknown", topic("unknown", 2))
    ask("bad name", topic("a/b", 2))
    ask("twice", topic("other", 3), topic("other", 4))
    ask("too few places", topic("other", 4, [1]))
    ask("a stranger", topic("other", 3, [9]))
    ask("a place", topic("other", 3, [1]), dry=True)
    ask("some of each", topic("made", 1), topic("other", 3))
    script.await_topic("other", 3)


def look(script: Script) -> None:
    def named(name: str | None, topic_id: UUID = NO_ID) -> MetadataRequestTopic:
        return MetadataRequestTopic(topic_id, name)

    for version in (13, 12, 10, 9, 5, 1):
        request = MetadataRequest([named("made")], version < 4)
        script.ask("one topic", "Metadata", version, request)
    for version in (1, 4, 13):
        script.ask("no topics", "Metadata", version, MetadataRequest([], version < 4))
    script.ask("unknown", "Metadata", 13, MetadataRequest([named("unknown")], False))
    script.ask("unknown, to create", "Metadata", 13, MetadataRequest([named("unknown")], True))
    for name in ("a/b", "", ".."):
        script.ask(f"bad name {name!r}", "Metadata", 13, MetadataRequest([named(name)], False))
    script.ask("unknown id", "Metadata", 13, MetadataRequest([named(None, UNKNOWN_ID)], False))
    script.ask("no id, no name", "Metadata", 13, MetadataRequest([named(None)], False))
    known = script.await_topic("made", 2).topic_id
    script.ask("by id", "Metadata", 13, MetadataRequest([named(None, known)], False))
    script.ask("id and name", "Metadata", 13, MetadataRequest([named("made", known)], False))
    script.ask("repeated", "Metadata", 13, MetadataRequest([named("made"), named("made")], False))
    request = MetadataRequest([named("made")], False, True, True)
    script.ask("what may be done", "Metadata", 10, request)
    request = MetadataRequest([named("made")], False, False, True)
    script.ask("what may be done", "Metadata", 13, request)

    for version in (0, 1, 2):
        script.ask("plain", "DescribeCluster", version, DescribeClusterRequest(False))
        script.ask("what may be done", "DescribeCluster", version, DescribeClusterRequest(True))
    script.ask("controllers", "DescribeCluster", 2, DescribeClusterRequest(False, 2))
    script.ask("a third kind", "DescribeCluster", 2, DescribeClusterRequest(False, 3))


def records(script: Script) -> None:
    for _ in range(3):
        script.client.call("Produce", 9, produce("made", batch([b"a", b"b"])))

    def ask(label: str, topic: str, index: int, timestamp: int, version: int = 11) -> None:
        part = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [part])])
        script.ask(label, "ListOffsets", version, request)

    for timestamp in (*ListedOffset, -7, 0, 1_700_000_000_000, 1_700_000_000_001):
        ask(f"timestamp {int(timestamp)}", "made", 0, timestamp)
    for version, timestamps in ((1, (-1, -2, -3)), (6, (-3,)), (7, (-3, -4)), (8, (-4, -5)),
                                (9, (-5, -6)), (10, (-6,))):  # fmt: skip
        for timestamp in timestamps:
            ask(f"timestamp {timestamp}", "made", 0, timestamp, version)
    ask("empty, by time", "other", 0, 1_000)
    ask("empty, largest time", "other", 0, -3)
    ask("unknown topic", "unknown", 0, -1)
    ask("unknown partition", "made", 5, -1)
    ask("negative partition", "made", -1, -1)
    for epoch in (99, 0):
        part = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("made", [part])])
        script.ask(f"leader epoch {epoch}", "ListOffsets", 11, request)
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("made", [part, part])])
    script.ask("twice", "ListOffsets", 11, request)

    def ends(label: str, topic: str, index: int, epoch: int, current: int = -1) -> None:
        part = OffsetForLeaderPartition(index, current, epoch)
        request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [part])])
        script.ask(label, "OffsetForLeaderEpoch", 4, request)

    ends("the present", "made", 0, 0)
    ends("the future", "made", 0, 50)
    ends("none", "made", 0, -1)
    ends("unknown topic", "unknown", 0, 0)
    ends("unknown partition", "made", 9, 0)
    ends("a leader of the future", "made", 0, 0, 99)

    def remove(label: str, topic: str, index: int, offset: int) -> None:
        part = DeleteRecordsPartition(index, offset)
        request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [part])], 10_000)
        script.ask(label, "DeleteRecords", 2, request)

    def measure(version: int, *topics: tuple[str, list[int]]) -> None:
        request = DescribeLogDirsRequest([DescribableLogDirTopic(*each) for each in topics])
        script.ask(f"{topics}", "DescribeLogDirs", version, request)

    for version in (1, 2, 3, 4, 5):
        measure(version, ("made", [0, 1]), ("unknown", [0]))
    measure(5)
    measure(5, ("made", [9]))
    measure(5, ("made", [1]), ("other", [0]))

    remove("some", "made", 0, 2)
    remove("fewer", "made", 0, 1)
    remove("too many", "made", 0, 100)
    remove("-2", "made", 0, -2)
    remove("all", "made", 0, -1)
    remove("unknown topic", "unknown", 0, 1)
    remove("unknown partition", "made", 9, 1)


def read_errors(script: Script) -> None:
    def ask(
        label: str, version: int, *, topic: str = "made", topic_id: UUID = NO_ID, index: int = 0,
        offset: int = 6, epoch: int = -1, session: tuple[int, int] = (0, -1),
    ) -> None:  # fmt: skip
        part = FetchPartition(index, epoch, offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=session[0],
            session_epoch=session[1], topics=[FetchTopic(topic, topic_id, [part])],
        )  # fmt: skip
        script.ask(label, "Fetch", version, request)

    known = script.await_topic("made", 2).topic_id
    for version in (4, 7, 11, 12):
        ask("the end", version)
    for version in (13, 16):
        ask("the end", version, topic="", topic_id=known)
    ask("behind the end", 12, offset=100)
    ask("before the start", 12, offset=0)
    ask("a negative offset", 12, offset=-5)
    ask("unknown topic", 12, topic="unknown")
    ask("unknown partition", 12, index=9)
    ask("unknown id", 16, topic="", topic_id=UNKNOWN_ID)
    ask("no id", 16, topic="")
    ask("unknown partition", 16, topic="", topic_id=known, index=9)
    ask("a leader of the future", 12, epoch=99)
    ask("unknown session", 12, session=(123_456, 7))
    ask("a session that ends", 12, session=(123_456, -1))
    ask("a new session", 12, session=(0, 0))


def write_errors(script: Script) -> None:
    good = batch([b"v"])

    def ask(label: str, version: int, request: ProduceRequest) -> None:
        script.ask(label, "Produce", version, request)

    def by_id(topic_id: UUID, data: bytes | None) -> ProduceRequest:
        topic = TopicProduceData("", topic_id, [PartitionProduceData(0, data)])
        return ProduceRequest(None, -1, 10_000, [topic])

    for version in (3, 7, 8, 12):
        ask("fine", version, produce("made", good))
    known = script.await_topic("made", 2).topic_id
    ask("fine", 13, by_id(known, good))
    ask("unknown id", 13, by_id(UNKNOWN_ID, good))
    ask("no id", 13, by_id(NO_ID, good))
    ask("unknown topic", 12, produce("unknown", good))
    ask("unknown partition", 12, produce("made", good, partition=9))
    for acks in (2, -2):
        ask(f"acks {acks}", 12, produce("made", good, acks=acks))
    damaged = bytearray(good)
    damaged[-1] ^= 1
    ask("damaged", 12, produce("made", bytes(damaged)))
    ask("cut", 12, produce("made", good[:-3]))
    ask("too large", 12, produce("made", batch([b"v" * 1_100_000])))

    def number(label: str, version: int, *given: Any) -> None:
        script.ask(label, "InitProducerId", version, InitProducerIdRequest(*given))

    eventually(
        lambda: script.client.call(
            "InitProducerId", 5, InitProducerIdRequest(None, 60_000)
        ).error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        seconds=60,
    )  # fmt: skip
    for version in (0, 5):
        number("idempotent", version, None, 60_000)
        number("empty transactional id", version, "", 60_000)
    number("again", 5, None, 60_000, 4_000, 3)
    number("half of it", 5, None, 60_000, 4_000, -1)


def groups(script: Script) -> None:
    def find(label: str, version: int, key_type: int, *keys: str) -> None:
        request = FindCoordinatorRequest(keys[0] if version < 4 else "", key_type)
        if version >= 4:
            request.coordinator_keys = list(keys)
        script.ask(label, "FindCoordinator", version, request)

    eventually(
        lambda: script.client.call(
            "FindCoordinator", 1, FindCoordinatorRequest("g", CoordinatorType.GROUP)
        ).error_code == 0,
        seconds=60,
    )  # fmt: skip
    for version in range(7):
        find("a group", version, CoordinatorType.GROUP, "g")
    find("two groups", 6, CoordinatorType.GROUP, "g", "h")
    find("no key", 6, CoordinatorType.GROUP)
    find("empty key", 6, CoordinatorType.GROUP, "")
    find("unknown kind", 6, 9, "g")
    find("unknown kind", 3, 9, "g")
    find("share, badly written", 6, CoordinatorType.SHARE, "g")

    describe = DescribeGroupsRequest(["unknown"])
    eventually(
        lambda: script.client.call("DescribeGroups", 6, describe).groups[0].error_code
        == ErrorCode.GROUP_ID_NOT_FOUND,
        seconds=60,
    )  # fmt: skip
    for version in (0, 5, 6):
        script.ask("unknown", "DescribeGroups", version, describe)
    script.ask("no name", "DescribeGroups", 6, DescribeGroupsRequest([""]))
    script.ask("with rights", "DescribeGroups", 6, DescribeGroupsRequest(["unknown"], True))
    script.ask("unknown", "DeleteGroups", 2, DeleteGroupsRequest(["unknown"]))
    script.ask("no name", "DeleteGroups", 2, DeleteGroupsRequest([""]))
    for version in (0, 3, 4, 5):
        script.ask("all", "ListGroups", version, ListGroupsRequest())
    for states, types in ((["Stable"], []), (["nonsense"], []), ([], ["consumer"]), ([], ["no"])):
        label = f"{states} {types}"
        script.ask(label, "ListGroups", 5, ListGroupsRequest(states, types))

    internal = produce("__consumer_offsets", batch([b"v"]))
    script.ask("internal topic", "Produce", 12, internal)


def delete(script: Script) -> None:
    def ask(label: str, *topics: DeleteTopicState) -> None:
        script.ask(label, "DeleteTopics", 6, DeleteTopicsRequest(list(topics), [], 30_000))

    for version in (1, 5):
        request = DeleteTopicsRequest([], ["unknown"], 30_000)
        script.ask("unknown", "DeleteTopics", version, request)
    named = DeleteTopicState
    ask("unknown", named("unknown"))
    ask("unknown id", DeleteTopicState(None, UNKNOWN_ID))
    ask("no id", DeleteTopicState(None))
    known = script.await_topic("other", 3).topic_id
    ask("id and name", DeleteTopicState("other", known))
    ask("twice", named("old"), named("old"))
    ask("one of two", named("old"), named("unknown"))
    ask("by id", DeleteTopicState(None, known))
    script.await_gone("other")
    script.await_gone("old")
    ask("once more", named("old"))
    request = DeleteTopicsRequest([], ["oldest"], 30_000)
    script.ask("one", "DeleteTopics", 1, request)
    script.await_gone("oldest")
