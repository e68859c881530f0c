"""Members of both group protocols in one group, request by request, against Apache Kafka 4.3.

A group goes from classic to consumer with the first member of the newer protocol, and back with the
last; classic members stay members throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e import test_groups_agreement as agreement
from tests.e2e.agreement import answers_of_kafka, assert_agrees
from tests.e2e.consumer_heartbeats import assigned, heartbeat_request
from tests.e2e.produce_requests import create_topic
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.errors import ErrorCode, ProtocolError
from tidelog.protocol.consumer_protocol import decode_assignment
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

pytestmark = pytest.mark.java

POLICY = {"group.consumer.migration.policy": "bidirectional"}
SETTINGS = {**agreement.SETTINGS, **POLICY}
KAFKA_SETTINGS = {**agreement.KAFKA_SETTINGS, **POLICY}
ANSWERS_MIN = 150


def text(value: str) -> bytes:
    return len(value).to_bytes(2) + value.encode()


def partitions_of(topic: str, partitions: list[int]) -> bytes:
    numbers = b"".join(each.to_bytes(4) for each in partitions)
    return b"\0\0\0\1" + text(topic) + len(partitions).to_bytes(4) + numbers


def subscription(topics: list[str], owned: list[int], version: int = 1) -> bytes:
    """What a consumer of the classic protocol says of itself."""
    names = len(topics).to_bytes(4) + b"".join(map(text, topics))
    held = partitions_of("t", owned) if owned else bytes(4)
    more = {0: b"", 1: held, 2: held + b"\xff" * 4, 3: held + b"\xff" * 4 + text("rack")}
    return version.to_bytes(2) + names + b"\xff" * 4 + more[version]


def assignment(partitions: list[int], user_data: bytes = b"") -> bytes:
    data = len(user_data).to_bytes(4) + user_data if user_data else b"\xff" * 4
    return b"\0\1" + partitions_of("t", partitions) + data


def partitions_in(data: bytes) -> list[int]:
    try:
        return sorted(decode_assignment(data).get("t", []))
    except ProtocolError:
        return []


class Script(agreement.Script):
    """One broker, asked step by step, in whatever group is the current one."""

    group = "g"

    def __init__(self, client: RawClient) -> None:
        super().__init__(client)
        create_topic(client, "u", 2)
        # Ids that the broker drew, under the names that the script has for them.
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}

    def begin(self, group: str) -> None:
        self.group = group
        self.ids.clear()
        self.generations.clear()
        self.owned.clear()
        self.say(f"group {group}")

    def named(self, member_id: str | None) -> str | None:
        return next((name for name, each in self.ids.items() if each == member_id), member_id)

    def id_of(self, member: str) -> str:
        return self.ids.get(member, member)

    # The newer protocol

    def beat(
        self, member: str, epoch: int, owned: list[int] | None = None, **more: object
    ) -> list[int]:
        claimed = (self.topic_id, owned)
        request = heartbeat_request(self.group, self.id_of(member), epoch, claimed, **more)
        answer = self.client.call("ConsumerGroupHeartbeat", 1, request)
        given = assigned(answer)
        if given is not None:
            self.owned[member] = given
        self.say(
            f"beat {member} {epoch} {sorted(more)}", ErrorCode(answer.error_code).name,
            answer.error_message, answer.member_epoch, None if given is None else len(given),
        )  # fmt: skip
        return self.owned.get(member, [])

    # The classic one

    def request_join(self, member: str, **more: Any) -> JoinGroupRequest:
        topics, owned = more.pop("topics", ["t"]), more.pop("owned", [])
        metadata = more.pop("metadata", subscription(topics, owned, more.pop("version", 1)))
        names = more.pop("protocols", ("range", "roundrobin"))
        request = JoinGroupRequest(
            self.group, 30_000, 60_000, self.ids.get(member, ""), protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(each, metadata) for each in names],
        )  # fmt: skip
        for name, value in more.items():
            setattr(request, name, value)
        return request

    def joined(self, member: str, answer: Any) -> None:
        before = self.ids.get(member)
        if answer.member_id and answer.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            self.ids[member] = answer.member_id
        if not answer.error_code:
            self.generations[member] = answer.generation_id
        self.say(
            f"join {member}", ErrorCode(answer.error_code).name, answer.generation_id,
            answer.protocol_type, answer.protocol_name, self.named(answer.leader),
            bool(answer.error_code) or before in (None, "", answer.member_id),
            sorted(str(self.named(each.member_id)) for each in answer.members),
        )  # fmt: skip

    def join(self, member: str, api_version: int = 9, **more: Any) -> None:
        request = self.request_join(member, **more)
        answer = self.client.call("JoinGroup", api_version, request)
        self.joined(member, answer)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
            self.joined(member, self.client.call("JoinGroup", api_version, request))

    def sync(self, member: str, assigned: dict[str, bytes] | None = None, **more: Any) -> list[int]:
        request = SyncGroupRequest(
            self.group, self.generations.get(member, 0), self.id_of(member),
            protocol_type="consumer", protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(self.id_of(each), data)
                for each, data in (assigned or {}).items()
            ],
        )  # fmt: skip
        for name, value in more.items():
            setattr(request, name, value)
        answer = self.client.call("SyncGroup", 5, request)
        given = partitions_in(answer.assignment)
        self.say(
            f"sync {member} {sorted(more)}", ErrorCode(answer.error_code).name,
            answer.protocol_type, answer.protocol_name, answer.assignment[:2], len(given),
        )  # fmt: skip
        if not answer.error_code:
            self.owned[member] = given
        return given

    def heartbeat(self, member: str, generation: int | None = None, **more: Any) -> None:
        given = self.generations.get(member, 0) if generation is None else generation
        request = HeartbeatRequest(self.group, given, self.id_of(member))
        for name, value in more.items():
            setattr(request, name, value)
        answer = self.client.call("Heartbeat", 4, request)
        self.say(f"heartbeat {member} {sorted(more)}", ErrorCode(answer.error_code).name)

    def leave(self, *members: str, instance_id: str | None = None, version: int = 5) -> None:
        request = LeaveGroupRequest(self.group)
        if version < 3:
            request.member_id = self.id_of(members[0])
        else:
            request.members = [MemberIdentity(self.id_of(each), instance_id) for each in members]
        answer = self.client.call("LeaveGroup", version, request)
        codes = [ErrorCode(each.error_code).name for each in answer.members]
        self.say(f"leave {members} {version}", ErrorCode(answer.error_code).name, codes)

    # Both

    def commit(self, member: str, epoch: int, partitions: list[int], version: int = 9) -> None:
        parts = [OffsetCommitRequestPartition(each, 7, -1, "") for each in partitions]
        topic = OffsetCommitRequestTopic(name="t", partitions=parts)
        request = OffsetCommitRequest(self.group, epoch, self.id_of(member), topics=[topic])
        answer = self.client.call("OffsetCommit", version, request)
        codes = [ErrorCode(each.error_code).name for each in answer.topics[0].partitions]
        self.say(f"commit {member} {epoch} in version {version}", codes)

    def fetch(self, member: str | None, epoch: int, partition: int) -> None:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
        asker = None if member is None else self.id_of(member)
        group = OffsetFetchRequestGroup(self.group, asker, epoch, topics)
        answer = self.client.call("OffsetFetch", 9, OffsetFetchRequest(groups=[group])).groups[0]
        offsets = [each.committed_offset for one in answer.topics for each in one.partitions]
        self.say(f"fetch {member} {epoch}", ErrorCode(answer.error_code).name, offsets)

    def delete(self) -> None:
        answer = self.client.call("DeleteGroups", 2, DeleteGroupsRequest([self.group]))
        self.say("delete", ErrorCode(answer.results[0].error_code).name)

    def members(self) -> set[str]:
        request = ConsumerGroupDescribeRequest([self.group])
        found = self.client.call("ConsumerGroupDescribe", 1, request).groups[0]
        return {each.member_id for each in found.members}

    def describe(self, group: str | None = None) -> None:
        request = ConsumerGroupDescribeRequest([self.group])
        found = self.client.call("ConsumerGroupDescribe", 1, request).groups[0]
        self.say(
            "describe", ErrorCode(found.error_code).name, found.error_message,
            found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name,
            sorted(
                (
                    str(self.named(each.member_id)), str(each.instance_id), str(each.rack_id),
                    each.member_epoch, each.client_id, each.client_host,
                    each.subscribed_topic_names, each.subscribed_topic_regex, each.member_type,
                    agreement.count(each.assignment), agreement.count(each.target_assignment),
                )
                for each in found.members
            ),
        )  # fmt: skip
        old = self.client.call("DescribeGroups", 6, DescribeGroupsRequest([self.group])).groups[0]
        # Of a group that has yet to rebalance Kafka shows what members were to own, not what they
        # own.
        is_shown = old.group_state == "Stable"
        self.say(
            "describe as classic", ErrorCode(old.error_code).name, old.error_message,
            old.group_state, old.protocol_type, old.protocol_data,
            sorted(
                (
                    str(self.named(each.member_id)), str(each.group_instance_id), each.client_id,
                    each.member_metadata,
                    len(partitions_in(each.member_assignment)) if is_shown else None,
                )
                for each in old.members
            ),
        )  # fmt: skip
        listed = self.client.call("ListGroups", 5, ListGroupsRequest())
        self.say(
            "list",
            [
                (each.group_id, each.protocol_type, each.group_state, each.group_type.lower())
                for each in listed.groups
                if each.group_id == self.group
            ],
        )


def form(script: Script, group: str, **more: Any) -> None:
    """A classic group of one member that owns everything."""
    script.begin(group)
    script.join("old", **more)
    script.sync("old", {"old": assignment([0, 1, 2, 3, 4, 5])})
    script.heartbeat("old")


def upgrade_and_back(script: Script) -> None:
    form(script, "both-ways")
    script.describe()
    script.beat("new", 5)
    script.beat("new", -1)
    script.beat("new", 0)
    script.describe()
    script.beat("new", 2)
    script.heartbeat("old")
    script.heartbeat("old", 7)
    script.sync("old")
    kept = script.owned["old"]
    script.commit("old", 1, kept)
    # It says what it owns, hears what it may keep, and comes again without the rest.
    script.join("old", owned=kept)
    script.describe()
    kept = script.sync("old")
    script.heartbeat("old")
    script.join("old", owned=kept)
    script.sync("old", protocol_name="roundrobin")
    script.sync("old", protocol_type="connect")
    script.sync("old", generation_id=9)
    script.sync("old")
    script.heartbeat("old")
    script.beat("new", 2)
    script.describe()
    mine, theirs = script.owned["old"][0], script.owned["new"][0]
    script.commit("old", 2, [mine])
    script.commit("old", 2, [mine], version=8)
    script.commit("old", 1, [mine])
    script.commit("old", 1, [theirs])
    script.commit("old", 3, [mine])
    script.commit("new", 2, [theirs])
    script.commit("new", 2, [theirs], version=8)
    script.fetch("old", 2, mine)
    script.fetch("old", 1, mine)
    script.fetch("new", 2, mine)
    script.fetch(None, -1, mine)
    script.delete()
    # Requests of one protocol by a member of the other.
    script.heartbeat("new", 2)
    script.sync("new", generation_id=2)
    script.beat("new", -1)
    script.describe()
    script.heartbeat("old")
    script.fetch(None, -1, mine)
    script.join("old", owned=script.owned["old"])
    script.sync("old", {"old": assignment([0, 1, 2, 3, 4, 5])})
    script.heartbeat("old")
    script.describe()
    script.leave("old")
    script.describe()


def join_live_consumer_group(script: Script) -> None:
    script.begin("classic-joins")
    everything = script.beat("new", 0)
    script.beat("new", 2, everything)
    script.join("old", protocol_type="connect")
    script.join("old", api_version=3, version=3)
    script.describe()
    script.sync("old")
    script.heartbeat("old")
    script.join("other", protocols=("sticky",))
    script.ids.pop("other", None)
    kept = script.beat("new", 2)
    script.beat("new", 2, kept)
    script.describe()
    script.heartbeat("old")
    script.join("old", version=0)
    script.sync("old")
    script.heartbeat("old")
    script.describe()
    script.join("old", topics=["t", "u"], version=2)
    script.sync("old")
    script.describe()
    script.leave("stranger")
    script.leave("old", version=2)
    script.describe()
    script.join("old", topics=["t"])
    script.leave("new")
    script.describe()
    script.heartbeat("old")
    script.leave("old", version=1)
    script.describe()


def use_static_members(script: Script) -> None:
    form(script, "static", group_instance_id="i")
    # The process comes back with the newer protocol, and goes back to the classic one.
    script.beat("new", 0, instance_id="i")
    script.describe()
    script.heartbeat("old", group_instance_id="i")
    script.beat("new", 2, [0, 1, 2, 3, 4, 5], instance_id="i")
    script.join("again", group_instance_id="i")
    script.describe()
    script.sync("again", group_instance_id="i")
    script.heartbeat("again", group_instance_id="i")
    script.beat("new", 2, instance_id="i")
    script.beat("new", 0, instance_id="j")
    script.describe()
    script.join("again", group_instance_id="i", owned=[0, 1, 2, 3, 4, 5])
    script.sync("again", group_instance_id="i")
    script.join("stranger", group_instance_id="j", member_id="stranger")
    script.ids.pop("stranger", None)
    script.join("second", group_instance_id="k")
    script.sync("second", group_instance_id="k")
    script.describe()
    script.leave("", instance_id="j")
    script.describe()
    script.leave("", instance_id="k")
    script.leave("again", instance_id="i")
    script.describe()


def refuse_what_cannot_be_moved(script: Script) -> None:
    script.begin("connect")
    script.join("old", protocol_type="connect", metadata=b"x")
    script.sync("old", {"old": b""}, protocol_type="connect")
    script.beat("new", 0)
    script.describe()
    script.begin("custom")
    script.join("old")
    script.sync("old", {"old": assignment([0], b"custom")})
    script.beat("new", 0)
    script.begin("malformed")
    script.join("old", metadata=b"\0\1")
    script.sync("old", {"old": b"\0\1\0"})
    script.beat("new", 0)
    script.describe()


def upgrade_within_a_rebalance(script: Script) -> None:
    form(script, "rebalancing")
    host, port = script.client.socket.getpeername()
    other = RawClient(f"{host}:{port}")
    try:
        other.send("JoinGroup", 3, script.request_join("second"))
        beat = HeartbeatRequest(script.group, script.generations["old"], script.ids["old"])
        eventually(lambda: script.client.call("Heartbeat", 4, beat).error_code != ErrorCode.NONE)
        script.beat("new", 0)
        answer = other.receive()[1]
        script.ids["second"] = next(iter(script.members() - set(script.ids.values()) - {"new"}))
        script.say("the join that waited", ErrorCode(answer.error_code).name)
        script.heartbeat("old")
        script.join("old", owned=[0, 1, 2, 3, 4, 5])
        script.describe()
    finally:
        other.close()


PARTS: tuple[Callable[[Script], None], ...] = (
    upgrade_and_back,
    join_live_consumer_group,
    use_static_members,
    refuse_what_cannot_be_moved,
    upgrade_within_a_rebalance,
)


def ask(client: RawClient) -> list[object]:
    script = Script(client)
    for part in PARTS:
        part(script)
    return script.answers


@pytest.fixture(scope="module")
def expected() -> list[object]:
    return answers_of_kafka(ask, KAFKA_SETTINGS)


def test_members_of_both_protocols_are_answered_as_by_kafka(expected: list[object]) -> None:
    assert_agrees(ask, SETTINGS, expected, ANSWERS_MIN)
