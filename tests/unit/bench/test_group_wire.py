"""The group frames of the load generators, judged by the codec of the broker."""

import struct
from typing import Any

from bench import group_wire
from bench.group_wire import Membership
from tidelog.protocol import framing
from tidelog.protocol.apis import API_BY_KEY, api
from tidelog.protocol.consumer_protocol import decode_assignment, read_topics
from tidelog.protocol.messages.find_coordinator import FindCoordinatorResponse
from tidelog.protocol.messages.heartbeat import HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tidelog.protocol.messages.sync_group import SyncGroupResponse
from tidelog.protocol.schema import decode

WHO = Membership("payments", 7, "member-1")


def request(frame: bytes) -> Any:
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header, position = framing.decode_request_header(frame, 4)
    message, end = decode(API_BY_KEY[header.api_key].request, header.api_version, frame, position)
    assert end == len(frame)
    return message


def answer(name: str, version: int, message: object) -> bytes:
    parts: list[Any] = framing.encode_response(api(name), version, 1, message)
    return b"".join(parts)[4:]


def test_a_member_asks_for_its_coordinator_and_joins_with_its_subscription() -> None:
    found = request(group_wire.find_coordinator_frame("payments"))
    assert (found.key, found.key_type) == ("payments", 0)
    join = request(group_wire.join_frame("payments", "member-1", "orders"))
    assert (join.group_id, join.member_id, join.protocol_type) == (
        "payments",
        "member-1",
        "consumer",
    )
    (protocol,) = join.protocols
    assert protocol.name == "range"
    assert read_topics(protocol.metadata) == ["orders"]


def test_a_member_speaks_for_its_generation() -> None:
    for frame in (
        group_wire.heartbeat_frame(WHO),
        group_wire.sync_frame(WHO, {"member-1": b"mine", "member-2": b"yours"}),
    ):
        message = request(frame)
        assert (message.group_id, message.generation_id, message.member_id) == (
            "payments",
            7,
            "member-1",
        )
    assert [each.assignment for each in message.assignments] == [b"mine", b"yours"]


def test_a_commit_names_every_partition() -> None:
    commit = request(group_wire.commit_frame(WHO, "orders", {3: 30, 4: 40}))
    assert commit.generation_id_or_member_epoch == 7
    (topic,) = commit.topics
    assert topic.name == "orders"
    assert {each.partition_index: each.committed_offset for each in topic.partitions} == {
        3: 30,
        4: 40,
    }
    fetch = request(group_wire.fetch_offsets_frame("payments", "orders", [3, 4]))
    assert (fetch.group_id, fetch.topics[0].partition_indexes) == ("payments", [3, 4])


def test_range_gives_consecutive_partitions_and_the_first_members_one_more() -> None:
    shares = group_wire.range_assignments(["c", "a", "b"], "orders", 7)
    assert {member: list(owned) for member, (owned, _) in shares.items()} == {
        "a": [0, 1, 2],
        "b": [3, 4],
        "c": [5, 6],
    }
    for owned, data in shares.values():
        assert decode_assignment(data) == {"orders": list(owned)}
        synced = answer("SyncGroup", 3, SyncGroupResponse(assignment=data))
        assert group_wire.error_of(synced) == 0
        assert group_wire.assigned_partitions(synced) == list(owned)


def test_the_leader_is_told_of_all_members() -> None:
    members = [JoinGroupResponseMember(each, None, b"metadata") for each in ("a", "b")]
    message = JoinGroupResponse(
        generation_id=3, protocol_name="range", leader="a", member_id="a", members=members
    )
    joined = group_wire.joined(answer("JoinGroup", 5, message))
    assert (joined.error, joined.generation, joined.member_id) == (0, 3, "a")
    assert joined.members == ["a", "b"]


def test_errors_are_found_where_they_are() -> None:
    assert group_wire.error_of(answer("Heartbeat", 3, HeartbeatResponse(error_code=27))) == 27
    found = FindCoordinatorResponse(error_code=15)
    assert group_wire.error_of(answer("FindCoordinator", 2, found)) == 15
    joined = JoinGroupResponse(error_code=79, protocol_name="", member_id="given")
    refused = group_wire.joined(answer("JoinGroup", 5, joined))
    assert (refused.error, refused.member_id) == (79, "given")
    parts = [OffsetCommitResponsePartition(0, 0), OffsetCommitResponsePartition(1, 22)]
    commit = OffsetCommitResponse(topics=[OffsetCommitResponseTopic("orders", partitions=parts)])
    assert group_wire.commit_errors(answer("OffsetCommit", 7, commit)) == [0, 22]


def test_fetched_offsets_come_with_the_first_error() -> None:
    def fetched(message: OffsetFetchResponse) -> tuple[int, dict[int, int]]:
        return group_wire.fetched_offsets(answer("OffsetFetch", 5, message))

    good = [OffsetFetchResponsePartition(index, index * 10, -1, "m") for index in (1, 2)]
    topics = [OffsetFetchResponseTopic("orders", good)]
    assert fetched(OffsetFetchResponse(topics=topics)) == (0, {1: 10, 2: 20})
    assert fetched(OffsetFetchResponse(error_code=14)) == (14, {})
    good[1].error_code = 3
    assert fetched(OffsetFetchResponse(topics=topics))[0] == 3
