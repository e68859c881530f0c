"""The newer group protocol, request by request, against Apache Kafka 4.3: the same answers.

Members of both protocols in one group are in `test_groups_migration_agreement`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.agreement import answers_of_kafka, assert_agrees
from tests.e2e.consumer_heartbeats import assigned, heartbeat_request
from tests.e2e.produce_requests import create_topic
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.sync_group import SyncGroupRequest

pytestmark = pytest.mark.java

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "5000",
    "group.consumer.migration.policy": "disabled",
}
KAFKA_SETTINGS = {
    **SETTINGS,
    "offsets.topic.replication.factor": "1",
    # Here a target is computed at once.
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}
ANSWERS_MIN = 150


class Script:
    """One broker, asked step by step; `answers` is what it said."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.answers: list[object] = []
        create_topic(client, "t", 6)
        self.await_coordinator()
        topics = [MetadataRequestTopic(name="t")]
        found = client.call("Metadata", 12, MetadataRequest(topics=topics))
        self.topic_id = found.topics[0].topic_id
        self.owned: dict[str, list[int]] = {}

    def await_coordinator(self) -> None:
        find = FindCoordinatorRequest(coordinator_keys=["g"])
        look = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[])])
        eventually(
            lambda: (
                not (
                    self.client.call("FindCoordinator", 4, find).coordinators[0].error_code
                    or self.client.call("OffsetFetch", 8, look).groups[0].error_code
                )
            ),
            seconds=60,
        )

    def say(self, what: str, *answer: object) -> None:
        self.answers.append((what, *answer))

    def beat(
        self, member: str, epoch: int, owned: list[int] | None = None, **more: object
    ) -> list[int]:
        """A heartbeat; what the member is told to own from now on."""
        request = heartbeat_request("g", member, epoch, (self.topic_id, owned), **more)
        answer = self.client.call("ConsumerGroupHeartbeat", 1, request)
        given = assigned(answer)
        if given is not None:
            self.owned[member] = given
        message = answer.error_message
        if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            # What is wrong with it is in the library's words.
            message = message.rpartition(": ")[0].partition(": ")[0]
        self.say(
            f"beat {member} {epoch} {sorted(more)}", ErrorCode(answer.error_code).name,
            message, answer.member_epoch, answer.heartbeat_interval_ms,
            None if given is None else len(given),
        )  # fmt: skip
        return self.owned.get(member, [])

    def commit(self, member: str, epoch: int, partitions: list[int], version: int = 9) -> None:
        parts = [OffsetCommitRequestPartition(each, 7, -1, "") for each in partitions]
        topic = OffsetCommitRequestTopic(name="t", partitions=parts)
        request = OffsetCommitRequest("g", epoch, member, topics=[topic])
        answer = self.client.call("OffsetCommit", version, request)
        codes = [ErrorCode(each.error_code).name for each in answer.topics[0].partitions]
        self.say(f"commit {member} {epoch} in version {version}", codes)

    def fetch(self, member: str | None, epoch: int, partition: int) -> None:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
        group = OffsetFetchRequestGroup("g", member, epoch, topics)
        answer = self.client.call("OffsetFetch", 9, OffsetFetchRequest(groups=[group])).groups[0]
        offsets = [each.committed_offset for one in answer.topics for each in one.partitions]
        self.say(f"fetch {member} {epoch}", ErrorCode(answer.error_code).name, offsets)

    def describe(self, group: str = "g") -> None:
        request = ConsumerGroupDescribeRequest([group])
        found = self.client.call("ConsumerGroupDescribe", 1, request).groups[0]
        self.say(
            f"describe {group}", ErrorCode(found.error_code).name, found.error_message,
            found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name,
            [
                (
                    each.member_id, each.instance_id, each.member_epoch, each.client_id,
                    each.client_host, each.subscribed_topic_names,
                    each.subscribed_topic_regex, each.member_type,
                    count(each.assignment), count(each.target_assignment),
                )
                for each in sorted(found.members, key=lambda each: each.member_id)
            ],
        )  # fmt: skip
        for version in (5, 6):
            old = self.client.call("DescribeGroups", version, DescribeGroupsRequest([group]))
            seen = old.groups[0]
            self.say(
                f"describe {group} as classic in {version}", ErrorCode(seen.error_code).name,
                seen.error_message, seen.group_state, seen.protocol_type,
            )  # fmt: skip
        listed = self.client.call("ListGroups", 5, ListGroupsRequest(types_filter=["consumer"]))
        self.say(
            "list",
            [
                (each.group_id, each.protocol_type, each.group_state, each.group_type.lower())
                for each in listed.groups
            ],
        )

    def until_resolved(self, epoch: int) -> None:
        """Patterns are resolved behind the answer, which raises the epoch."""
        request = ConsumerGroupDescribeRequest(["g"])

        def is_there() -> bool:
            found = self.client.call("ConsumerGroupDescribe", 1, request).groups[0]
            return bool(found.group_epoch >= epoch)

        eventually(is_there)


def count(assignment: Any) -> list[tuple[str, int]]:
    return sorted((each.topic_name, len(each.partitions)) for each in assignment.topic_partitions)


def play(script: Script) -> None:
    refuse_nonsense(script)
    move_partitions(script)
    commit_and_fetch(script)
    use_static_members(script)
    end_groups(script)
    use_patterns(script)
    mix_protocols(script)


def refuse_nonsense(script: Script) -> None:
    script.beat("one", 5)
    script.beat("one", -1)
    script.beat("", 0)
    script.beat("one", 0, group_id="")
    script.beat("one", 0, instance_id="")
    script.beat("one", 0, rack_id="")
    script.beat("one", 0, rebalance_timeout_ms=-1)
    script.beat("one", 0, topic_partitions=None)
    script.beat("one", 0, subscribed_topic_names=None)
    script.beat("one", -2)
    script.beat("one", -3)
    script.beat("one", 0, server_assignor="random")
    script.describe()


def move_partitions(script: Script) -> None:
    everything = script.beat("one", 0)
    script.beat("one", 2, everything)
    script.beat("one", 2)
    script.describe()
    script.beat("two", 0)
    script.describe()
    kept = script.beat("one", 2)
    script.describe()
    script.beat("two", 3)
    script.beat("one", 2, everything)
    script.beat("one", 2, kept)
    script.beat("one", 2, kept)
    given = script.beat("two", 3)
    script.beat("two", 3, given)
    script.describe()
    script.beat("one", 2)
    script.beat("one", 10, kept)
    script.beat("two", 2, given)
    script.beat("three", 3)
    full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
    script.beat("two", 3, given, **full)
    # The same id joins again, as after a lost connection.
    script.beat("two", 0)


def commit_and_fetch(script: Script) -> None:
    mine, theirs = script.owned["one"][0], script.owned["two"][0]
    script.commit("one", 2, [mine, theirs])
    script.commit("one", 3, [mine, theirs])
    script.commit("two", 2, [theirs])
    script.commit("one", 4, [mine])
    script.commit("three", 3, [mine])
    script.commit("", -1, [mine])
    script.commit("one", 3, [mine], version=8)
    script.fetch(None, -1, mine)
    script.fetch("one", 3, mine)
    script.fetch("one", 2, mine)
    script.fetch("three", 3, mine)
    old = script.client.call("Heartbeat", 3, HeartbeatRequest("g", 3, "one"))
    script.say("classic heartbeat", ErrorCode(old.error_code).name)
    topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(mine)])]
    gone = script.client.call("OffsetDelete", 0, OffsetDeleteRequest("g", topics))
    codes = [ErrorCode(each.error_code).name for each in gone.topics[0].partitions]
    script.say("delete an offset", ErrorCode(gone.error_code).name, codes)


def use_static_members(script: Script) -> None:
    script.beat("three", 0, instance_id="i")
    script.beat("four", 0, instance_id="i")
    script.beat("four", 4, instance_id="i")
    script.beat("four", 4, instance_id="unknown")
    script.beat("four", -2, instance_id="i")
    script.beat("three", -2, instance_id="i")
    script.describe()
    script.beat("four", 0, instance_id="i")
    script.beat("three", 4, instance_id="i")
    script.describe()
    request = LeaveGroupRequest("g", members=[MemberIdentity("", "i"), MemberIdentity("", "no")])
    left = script.client.call("LeaveGroup", 5, request)
    script.say("remove", [ErrorCode(each.error_code).name for each in left.members])


def end_groups(script: Script) -> None:
    def delete() -> None:
        answer = script.client.call("DeleteGroups", 2, DeleteGroupsRequest(["g"]))
        script.say("delete", ErrorCode(answer.results[0].error_code).name)

    delete()
    script.beat("one", -1)
    script.beat("one", -1)
    script.beat("two", -1)
    script.describe()
    script.commit("", -1, [0])
    script.commit("one", 3, [0])
    delete()
    delete()
    script.commit("one", 3, [0])
    script.commit("one", 3, [0], version=8)
    script.fetch("one", 3, 0)


def use_patterns(script: Script) -> None:
    def subscribe(member: str, epoch: int, pattern: str, owned: list[int] | None = None) -> None:
        names = {"subscribed_topic_names": None} if epoch == 0 else {}
        script.beat(member, epoch, owned, subscribed_topic_regex=pattern, **names)
        script.describe()

    for topic in ("pattern-a", "pattern-b", "other"):
        create_topic(script.client, topic, 2)
    for malformed in ("[", "(", "a**", "(?P<n", "\\8", "(?=a)", "a{1001}", "*a", ")", "[z-a]"):
        subscribe("one", 0, malformed)
    # Matched are whole names, those of internal topics too.
    script.beat("one", 0, subscribed_topic_names=None, subscribed_topic_regex="patt.*|.*_offsets")
    script.until_resolved(2)
    script.beat("one", 1)
    script.describe()
    script.beat("one", -1)
    # The last to name a pattern has gone, so another is resolved at once.
    script.beat("one", 0, subscribed_topic_names=None, subscribed_topic_regex="patt.*a")
    script.until_resolved(4)
    script.beat("one", 3)
    subscribe("two", 0, "patt.*a")
    script.beat("one", 4)
    script.describe()
    script.beat("one", 4, [])
    script.beat("two", 5)
    script.describe()
    subscribe("one", 5, "[")
    subscribe("one", 5, "")
    script.beat("one", 5, [], subscribed_topic_names=["other"])
    script.describe()
    for member in ("one", "two"):
        script.beat(member, -1)
    script.describe()
    script.beat("one", 0, subscribed_topic_regex="oth[a-z]+")
    script.until_resolved(11)
    script.beat("one", 10)
    script.describe()
    script.beat("one", 11, subscribed_topic_regex="matches-nothing")
    script.beat("one", 11)
    script.until_resolved(12)
    script.beat("one", 11, [])
    script.describe()
    script.beat("one", -1)
    script.describe()


def mix_protocols(script: Script) -> None:
    request = JoinGroupRequest(
        "classic", 30_000, 30_000, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0")],
    )  # fmt: skip
    joined = script.client.call("JoinGroup", 3, request)
    sync = SyncGroupRequest("classic", joined.generation_id, joined.member_id)
    script.client.call("SyncGroup", 3, sync)
    script.beat("one", 0, group_id="classic")
    script.beat("one", 1, group_id="classic")
    script.describe("classic-not")
    leave = LeaveGroupRequest("classic", members=[MemberIdentity(joined.member_id)])
    script.client.call("LeaveGroup", 3, leave)
    script.beat("one", 0, group_id="classic")


def ask(client: RawClient) -> list[object]:
    script = Script(client)
    play(script)
    return script.answers


@pytest.fixture(scope="module")
def expected() -> list[object]:
    return answers_of_kafka(ask, KAFKA_SETTINGS)


def test_every_answer_is_kafkas(expected: list[object]) -> None:
    assert_agrees(ask, SETTINGS, expected, ANSWERS_MIN)
