"""The consumer group part of the protocol for load generators: frames and what answers say.

The newest versions that are not flexible: FindCoordinator v2, JoinGroup v5, SyncGroup v3,
Heartbeat v3, OffsetCommit v7, OffsetFetch v5. Answers are read without their length prefix, from
the correlation id on.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.wire import frame, string

OFFSET_COMMIT_V7 = (8, 7)
OFFSET_FETCH_V5 = (9, 5)
FIND_COORDINATOR_V2 = (10, 2)
JOIN_GROUP_V5 = (11, 5)
HEARTBEAT_V3 = (12, 3)
SYNC_GROUP_V3 = (14, 3)

# After the correlation id and the throttle time.
_BODY = 8
_NULL_STRING = struct.pack(">h", -1)
_NULL_BYTES = struct.pack(">i", -1)
_SESSION_TIMEOUT_MS = 45_000
_REBALANCE_TIMEOUT_MS = 300_000


@dataclass(frozen=True, slots=True)
class Membership:
    """Who speaks, in which generation of which group."""

    group: str
    generation: int = -1
    member_id: str = ""

    def encode(self) -> bytes:
        head = string(self.group) + struct.pack(">i", self.generation)
        return head + string(self.member_id) + _NULL_STRING


@dataclass(frozen=True, slots=True)
class Joined:
    """A JoinGroup answer; only the leader's has members."""

    error: int
    generation: int
    member_id: str
    members: Sequence[str]


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def find_coordinator_frame(group: str, correlation_id: int = 1) -> bytes:
    return frame(FIND_COORDINATOR_V2, string(group) + b"\0", correlation_id)


def join_frame(group: str, member_id: str, topic: str, correlation_id: int = 1) -> bytes:
    """A consumer of one topic that knows the range assignor."""
    subscription = struct.pack(">hi", 0, 1) + string(topic) + _NULL_BYTES
    body = string(group) + struct.pack(">ii", _SESSION_TIMEOUT_MS, _REBALANCE_TIMEOUT_MS)
    body += string(member_id) + _NULL_STRING + string("consumer")
    body += struct.pack(">i", 1) + string("range") + _bytes(subscription)
    return frame(JOIN_GROUP_V5, body, correlation_id)


def sync_frame(who: Membership, assigned: Mapping[str, bytes], correlation_id: int = 1) -> bytes:
    """`assigned` is the leader's: what each member is to own."""
    body = who.encode() + struct.pack(">i", len(assigned))
    for member_id, assignment in assigned.items():
        body += string(member_id) + _bytes(assignment)
    return frame(SYNC_GROUP_V3, body, correlation_id)


def heartbeat_frame(who: Membership, correlation_id: int = 1) -> bytes:
    return frame(HEARTBEAT_V3, who.encode(), correlation_id)


def commit_frame(
    who: Membership, topic: str, offsets: Mapping[int, int], correlation_id: int = 1
) -> bytes:
    body = who.encode() + struct.pack(">i", 1) + string(topic) + struct.pack(">i", len(offsets))
    for partition, offset in offsets.items():
        body += struct.pack(">iqi", partition, offset, -1) + string("")
    return frame(OFFSET_COMMIT_V7, body, correlation_id)


def fetch_offsets_frame(group: str, topic: str, partitions: Sequence[int]) -> bytes:
    body = string(group) + struct.pack(">i", 1) + string(topic)
    body += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return frame(OFFSET_FETCH_V5, body)


def range_assignments(
    members: Sequence[str], topic: str, partitions: int
) -> dict[str, tuple[range, bytes]]:
    """Consecutive partitions for the members in their order, as numbers and in Kafka's bytes."""
    share, more = divmod(partitions, len(members))
    assigned, first = {}, 0
    for place, member_id in enumerate(sorted(members)):
        owned = range(first, first + share + (place < more))
        first = owned.stop
        data = struct.pack(">hi", 0, 1) + string(topic)
        data += struct.pack(f">i{len(owned)}i", len(owned), *owned) + _NULL_BYTES
        assigned[member_id] = (owned, data)
    return assigned


def error_of(answer: bytes) -> int:
    """The error of a FindCoordinator, SyncGroup or Heartbeat answer."""
    return int(struct.unpack_from(">h", answer, _BODY)[0])


def joined(answer: bytes) -> Joined:
    error, generation = struct.unpack_from(">hi", answer, _BODY)
    _, position = _string_at(answer, _BODY + 6)
    _, position = _string_at(answer, position)
    member_id, position = _string_at(answer, position)
    (count,) = struct.unpack_from(">i", answer, position)
    position += 4
    members = []
    for _ in range(count):
        each, position = _string_at(answer, position)
        _, position = _string_at(answer, position)
        (size,) = struct.unpack_from(">i", answer, position)
        position += 4 + size
        members.append(each)
    return Joined(error, generation, member_id, members)


def assigned_partitions(answer: bytes) -> list[int]:
    """The partitions of the only topic in a SyncGroup answer."""
    _, position = _string_at(answer, _BODY + 2 + 4 + 2 + 4)
    (count,) = struct.unpack_from(">i", answer, position)
    return list(struct.unpack_from(f">{count}i", answer, position + 4))


def commit_errors(answer: bytes) -> list[int]:
    """The error of each partition of the only topic in an OffsetCommit answer."""
    _, position = _string_at(answer, _BODY + 4)
    (count,) = struct.unpack_from(">i", answer, position)
    return list(struct.unpack_from(">" + "ih" * count, answer, position + 4)[1::2])


def fetched_offsets(answer: bytes) -> tuple[int, dict[int, int]]:
    """The error of an OffsetFetch answer, and the offsets of its only topic, if it has one."""
    (error,) = struct.unpack_from(">h", answer, len(answer) - 2)
    (topics,) = struct.unpack_from(">i", answer, _BODY)
    offsets: dict[int, int] = {}
    if topics == 0:
        return int(error), offsets
    _, position = _string_at(answer, _BODY + 4)
    (count,) = struct.unpack_from(">i", answer, position)
    position += 4
    for _ in range(count):
        partition, offset = struct.unpack_from(">iq", answer, position)
        _, position = _string_at(answer, position + 16)
        (failed,) = struct.unpack_from(">h", answer, position)
        position += 2
        error = error or failed
        offsets[partition] = offset
    return int(error), offsets


def _string_at(answer: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", answer, position)
    end = position + 2 + max(length, 0)
    return answer[position + 2 : end].decode(), end
