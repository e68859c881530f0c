"""Offsets of groups of the newer protocol: who may commit and fetch them (KIP-848, KIP-1251).

A commit names the member's epoch. One in the current epoch is taken. One in an older epoch is on
its way since before a rebalance: it is taken for those partitions that the member has owned since
that epoch without a break, and is stale for the others, which somebody else may own or have owned.
"""

from __future__ import annotations

from tidelog.coordinators.consumer_group import ConsumerGroup, ConsumerMember
from tidelog.coordinators.offset_commits import Commit, Committer
from tidelog.errors import ErrorCode, KafkaError

_COMMIT_VERSION = 9


def check_commit(group: ConsumerGroup, committer: Committer) -> ConsumerMember | None:
    """KafkaError where nothing may be committed; None where nobody is a member, nor need be."""
    if committer.generation < 0 and not group.members:
        return None
    member = group.require(committer.member_id)
    if committer.version < _COMMIT_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group"
            " protocol",
        )
    if committer.generation > member.epoch:
        raise KafkaError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"Received member epoch {committer.generation} is newer than current member epoch"
            f" {member.epoch}.",
        )
    return member


def is_stale(member: ConsumerMember, committer: Committer, commit: Commit) -> bool:
    """Whether a commit of an older epoch is of a partition that the member did not own then."""
    if committer.generation == member.epoch:
        return False
    since = member.assignment_epoch(commit.topic_id, commit.partition)
    return since is None or committer.generation < since


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """KafkaError where a member that says who it is is not, or no longer, in that epoch."""
    if member_id is None and epoch < 0:
        return
    member = group.require(member_id or "")
    if epoch != member.epoch:
        raise KafkaError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"The received member epoch {epoch} does not match the expected member epoch"
            f" {member.epoch}.",
        )
