"""Offsets of consumer groups: who may commit and fetch them (KIP-848, KIP-1251).

A commit names the member's epoch. One in the current epoch is taken. One in an older epoch is on
its way since before a rebalance: it is taken where the member has owned all its partitions since
that epoch without a break, and is stale where somebody else may own or have owned one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.consumer.group import ConsumerGroup, ConsumerMember
from tidelog.errors import ErrorCode, KafkaError

_VERSION_WITH_EPOCHS: Final = 9


def check_commit(group: ConsumerGroup, committer: Committer, commits: Iterable[Commit]) -> None:
    """KafkaError where this may not be committed; all of it is taken, or nothing."""
    if committer.generation < 0 and not group.members:
        return
    member = group.require(committer.member_id)
    if committer.version < _VERSION_WITH_EPOCHS and member.classic is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group"
            " protocol",
        )
    if committer.generation == member.epoch:
        return
    if committer.generation > member.epoch:
        raise KafkaError(
            _stale(member),
            f"Received member epoch {committer.generation} is newer than current member epoch"
            f" {member.epoch}.",
        )
    for commit in commits:
        _check_owned_since(member, committer.generation, commit)


def check_commit_in_transaction(
    group: ConsumerGroup, committer: Committer, commits: Iterable[Commit]
) -> None:
    """The same for a member that commits in a transaction; it knows of generations alone."""
    try:
        check_commit(group, committer._replace(version=_VERSION_WITH_EPOCHS), commits)
    except KafkaError as error:
        if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
            raise
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error


def _stale(member: ConsumerMember) -> ErrorCode:
    """A member of the classic protocol takes its epoch for a generation."""
    if member.classic is None:
        return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.ILLEGAL_GENERATION


def _check_owned_since(member: ConsumerMember, epoch: int, commit: Commit) -> None:
    since = member.assignment_epoch(commit.topic_id, commit.partition)
    if since is None or epoch < since:
        raise KafkaError(
            _stale(member),
            f"Partition {commit.topic}-{commit.partition} is the member's since epoch {since},"
            f" not since {epoch}.",
        )


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """KafkaError where a member that says who it is is not, or no longer, in that epoch."""
    if member_id is None and epoch < 0:
        return
    member = group.require(member_id or "")
    if epoch != member.epoch:
        raise KafkaError(
            _stale(member),
            f"The received member epoch {epoch} does not match the expected member epoch"
            f" {member.epoch}.",
        )
