"""Records of the offsets topic, held against bytes worked out from Kafka's definitions."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from tidelog.coordinators.groups.consumer.changes import (
    ConsumerReplay,
    current_record,
    member_record,
)
from tidelog.coordinators.groups.consumer.group import ConsumerMember, MemberState
from tidelog.coordinators.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from tidelog.coordinators.groups.records import (
    CoordinatorRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
    encode_record,
)
from tidelog.coordinators.groups.table import GroupTable
from tidelog.coordinators.groups.timers import Timers
from tidelog.coordinators.timers import TimerQueue
from tidelog.errors import ProtocolError
from tidelog.protocol.schema import encode

TOPIC_ID = UUID(int=7)


def test_an_offset_without_topic_id_is_written_in_version_3() -> None:
    record = CoordinatorRecord(OffsetCommitKey("g", "t", 5), OffsetCommitValue(9, 2, "m", 1_000))
    key, value = encode_record(record)
    assert key == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\5"
    expected = b"\0\3" + (9).to_bytes(8) + b"\0\0\0\2" + b"\0\1m" + (1_000).to_bytes(8)
    assert value == expected
    assert decode_record(key, value) == record


def test_an_offset_with_topic_id_is_written_in_version_4() -> None:
    record = CoordinatorRecord(
        OffsetCommitKey("g", "t", 5), OffsetCommitValue(9, 2, "m", 1_000, topic_id=TOPIC_ID)
    )
    key, value = encode_record(record)
    assert value is not None and value[:2] == b"\0\4" and value.endswith(TOPIC_ID.bytes)
    assert decode_record(key, value) == record


def test_an_offset_that_expires_at_a_time_of_its_own_is_written_in_version_1() -> None:
    value = OffsetCommitValue(9, -1, "", 1_000, expire_timestamp=2_000)
    key, written = encode_record(CoordinatorRecord(OffsetCommitKey("g", "t", 0), value))
    assert written is not None and written[:2] == b"\0\1"
    read = decode_record(key, written)
    assert read is not None and read.value == value


def test_a_group_comes_back_as_it_went_and_a_tombstone_has_no_value() -> None:
    value = GroupMetadataValue(
        "consumer", 3, "range", "m-1", 77,
        [MemberMetadata("m-1", "i-1", "client", "/127.0.0.1", 300, 100, b"sub", b"own")],
    )  # fmt: skip
    record = CoordinatorRecord(GroupMetadataKey("g"), value)
    key, written = encode_record(record)
    assert key == b"\0\2\0\1g"
    assert written is not None and written[:2] == b"\0\3"
    assert decode_record(key, written) == record
    tombstone = CoordinatorRecord(GroupMetadataKey("g"), None)
    assert encode_record(tombstone) == (key, None)
    assert decode_record(key, None) == tombstone


def test_the_older_kind_of_offset_is_read_and_an_unknown_kind_is_left_alone() -> None:
    key, value = encode_record(
        CoordinatorRecord(OffsetCommitKey("g", "t", 5), OffsetCommitValue(9, 2, "m", 1_000))
    )
    older = decode_record(b"\0\0" + key[2:], value)
    assert older is not None and older.key == OffsetCommitKey("g", "t", 5)
    assert decode_record(b"\0\x63whatever", b"\0\0") is None


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1\0\5g"])
def test_bad_bytes_are_refused(key: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode_record(key, b"\0\3")


def test_the_epoch_of_a_consumer_group_is_written_with_its_hash_as_a_tagged_field() -> None:
    record = CoordinatorRecord(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(5, -2))
    key, value = encode_record(record)
    assert key == b"\0\3\0\1g"
    assert value == b"\0\0" + b"\0\0\0\5" + b"\1" + b"\0\x08" + (-2).to_bytes(8, signed=True)
    assert decode_record(key, value) == record


def test_a_member_and_what_it_owns_are_written_as_kafka_does() -> None:
    member = ConsumerMember(
        "m", "i", None, "c", "/h", frozenset({"u", "t"}), 300, "range", 4, 3,
        MemberState.UNREVOKED_PARTITIONS, {TOPIC_ID: {1: 2}}, {TOPIC_ID: {5: 3}},
    )  # fmt: skip
    key, value = encode_record(member_record("g", member))
    assert key == b"\0\5\0\1g\0\1m"
    assert value == (
        b"\0\0" + b"\2i" + b"\0" + b"\2c" + b"\3/h" + b"\3\2t\2u" + b"\1"
        + (300).to_bytes(4) + b"\6range" + b"\0"
    )  # fmt: skip
    key, value = encode_record(current_record("g", member))
    assert key == b"\0\x08\0\1g\0\1m"

    def owned(partition: int, epoch: int) -> bytes:
        tagged = b"\1" + b"\0\5" + b"\2" + epoch.to_bytes(4)
        return b"\2" + TOPIC_ID.bytes + b"\2" + partition.to_bytes(4) + tagged

    assert value == (
        b"\0\0" + b"\0\0\0\4" + b"\0\0\0\3" + b"\1" + owned(1, 2) + owned(5, 3) + b"\0"
    )


def test_ownership_that_was_written_without_epochs_dates_from_the_members_own() -> None:
    """Brokers before 4.3 wrote none."""
    timers: Timers = TimerQueue()
    groups = GroupTable(timers)
    replay = ConsumerReplay(groups, timers).replay
    record = current_record("g", ConsumerMember("m", epoch=4, assigned={TOPIC_ID: {1: 2}}))
    assert isinstance(record.value, ConsumerGroupCurrentMemberAssignmentValue)
    record.value.assigned_partitions[0].assignment_epochs = None
    # And a state that only a newer broker knows.
    record.value.state = 99
    replay(record.key, record.value)  # type: ignore[arg-type]
    group = groups.consumer("g")
    assert group is not None
    member = group.members["m"]
    assert member.assigned == {TOPIC_ID: {1: 4}}
    assert member.state is MemberState.UNRELEASED_PARTITIONS


def test_a_commit_is_written_as_its_schemas_say() -> None:
    """The usual one has a way of its own; at its limits it is one and the same."""
    chance, compared = random.Random(1), 0
    for _ in range(500):
        key = OffsetCommitKey(
            chance.choice(("", "g", "gruppe-ä", "g" * 300)),
            chance.choice(("t", "t" * 249)),
            chance.choice((0, 1, 2**31 - 1)),
        )
        value = OffsetCommitValue(
            chance.choice((0, 1, 2**63 - 1, -1)),
            chance.choice((-1, 0, 2**31 - 1)),
            chance.choice(("", "ä", "m" * 126, "m" * 127, "m" * 4096)),
            chance.choice((0, 1_700_000_000_000)),
            -1,
            chance.choice((TOPIC_ID, UUID(int=2**128 - 1), UUID(int=0))),
        )
        version = 3 if value.topic_id.int == 0 else 4
        by_schema = (
            b"\0\1" + encode(key, 0),
            version.to_bytes(2) + encode(value, version),
        )
        assert encode_record(CoordinatorRecord(key, value)) == by_schema
        compared += 1
    assert compared == 500


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (OffsetCommitKey("g" * 40_000, "t", 0), OffsetCommitValue(1, 1, "", 1, -1, TOPIC_ID)),
        (OffsetCommitKey("g", "t", 2**31), OffsetCommitValue(1, 1, "", 1, -1, TOPIC_ID)),
        (OffsetCommitKey("g", "t", 0), OffsetCommitValue(2**63, 1, "", 1, -1, TOPIC_ID)),
    ],
    ids=["group", "partition", "offset"],
)
def test_a_commit_that_has_no_room_is_refused(
    key: OffsetCommitKey, value: OffsetCommitValue
) -> None:
    with pytest.raises(ProtocolError):
        encode_record(CoordinatorRecord(key, value))
