"""What an unclean election costs, as exactly as brokers can know it: lines of the audit log.

The controller says who leads although committed records may be missing there, and who had them. The
new leader says where its log ends. Each replica that had more says which committed offsets it drops
when it follows that leader. Nobody knows more: what a crash took with it, nobody can say.
"""

from __future__ import annotations

import logging

from tidelog.audit import audit
from tidelog.cluster.image import PartitionState
from tidelog.model import TopicPartition

_log = logging.getLogger(__name__)


def elected_without_records(
    before: PartitionState | None, state: PartitionState, broker_id: int
) -> bool:
    """Whether the step from one state to the next elected a broker that had not everything.

    Only a single step tells: between others the broker may have come in sync. A move that ends may
    elect a replica that comes in sync by the same step.
    """
    return (
        before is not None
        and state.partition_epoch == before.partition_epoch + 1
        and state.leader_epoch > before.leader_epoch
        and state.leader == broker_id
        and state.isr == (broker_id,)
        and broker_id not in (*before.isr, *before.elr)
        and state.adding == before.adding
        and state.replicas == before.replicas
    )


def report_unclean_leader(
    partition: TopicPartition, before: PartitionState, state: PartitionState, end: tuple[int, int]
) -> None:
    """`end` is where the log ends, and up to where it is known to be committed."""
    audit(
        "leads without committed records that others may have had",
        partition=str(partition),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        log_end_offset=end[0],
        known_committed_offset=end[1],
        replicas_that_had_them=sorted({*before.isr, *before.elr}),
    )


def report_dropped(
    partition: TopicPartition, leader: tuple[int, int], first: int, ends: tuple[int, int]
) -> None:
    """`ends` is up to where records were known to be committed, and where the log ended.

    After a crash a broker may know of less than was committed, so all that is dropped has a line.
    """
    committed, log_end = ends
    if first < committed:
        audit(
            "dropped committed records that the leader does not have",
            partition=str(partition),
            leader=leader[0],
            leader_epoch=leader[1],
            first_offset=first,
            last_offset=committed - 1,
            log_end_offset=log_end,
        )
    elif first < log_end:
        _log.info(
            "dropped records that the leader does not have, not known to be committed"
            " partition=%s leader=%d leader_epoch=%d first_offset=%d last_offset=%d",
            partition, *leader, first, log_end - 1,
        )  # fmt: skip
