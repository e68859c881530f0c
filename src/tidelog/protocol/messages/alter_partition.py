"""AlterPartition: a leader proposes other in-sync replicas to the controller.

All versions are flexible. Version notes: 3 names the broker epoch of every proposed member; earlier
ones are not spoken here.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int8, int16, int32, int64, structure, uuid


@structure
class BrokerState:
    """A proposed member, in the life in which its leader has seen it."""

    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


@structure
class ProposedPartition:
    """What is proposed for one partition."""

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr_with_epochs: list[BrokerState] = array_of(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


@structure
class ProposedTopic:
    """What is proposed for the partitions of one topic."""

    topic_id: UUID = uuid("2+", ignorable=True)
    partitions: list[ProposedPartition] = array_of(ProposedPartition)


@api_message
class AlterPartitionRequest:
    """Who proposes what."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[ProposedTopic] = array_of(ProposedTopic)


@structure
class DecidedPartition:
    """What holds for one partition now."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array_of("int32")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32()


@structure
class DecidedTopic:
    """What holds for the partitions of one topic now."""

    topic_id: UUID = uuid("2+", ignorable=True)
    partitions: list[DecidedPartition] = array_of(DecidedPartition)


@api_message
class AlterPartitionResponse:
    """What was decided."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[DecidedTopic] = array_of(DecidedTopic)
