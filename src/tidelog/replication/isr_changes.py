"""Asking the controller for changes of in-sync sets: one batch under way at a time.

A partition comes here when a follower has caught up, and when the metadata tells something new of
it or of the brokers; all of them are looked at now and then for followers that fell behind. What
becomes of a proposal follows from the answer: done, refused for certain, or unknown. An unknown one
is asked for again as it was, since it may have been done; one that the controller calls outdated
waits for the metadata. Meanwhile the partition counts with either outcome (`in_sync`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from tidelog.cluster.commands import (
    AlterPartition,
    Answer,
    GiveUpReplicas,
    PartitionDecided,
    Proposal,
    ReplicaKey,
)
from tidelog.errors import ErrorCode, KafkaError, PartitionBrokenError
from tidelog.replication.partition import Partition
from tidelog.replication.standing import UNREGISTERED, Standing

_log = logging.getLogger(__name__)

SubmitAll = Callable[
    [Sequence[AlterPartition | GiveUpReplicas]], Awaitable[list[Answer | KafkaError]]
]

_TOGETHER_MAX: Final = 1_000
# Partitions that one turn of the loop looks at; most of them have nothing to propose.
_LOOKS_PER_TURN: Final = 1_000
_RETRY_SECONDS: Final = 0.2
# The controller looks at these last: the state is the one that the proposal was made from, so no
# earlier try of it was done either.
_REFUSED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST})
# The state is another by now, perhaps by this very proposal: the metadata is on its way.
_OVERTAKEN: Final = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class IsrChanges:
    """The proposals of one broker's leaders."""

    def __init__(self, standing: Standing, submit_all: SubmitAll) -> None:
        self._standing = standing
        self._submit_all = submit_all
        # Those that may have something to propose, and what was asked and not answered yet.
        self._waiting: dict[Partition, None] = {}
        self._unanswered: dict[Partition, Proposal] = {}
        self._task: asyncio.Task[None] | None = None
        standing.reconsider = self.reconsider

    def reconsider(self, partition: Partition) -> None:
        """Look whether the partition's ISR should be another, and ask for it."""
        self._waiting[partition] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="isr-changes")

    def look_for_lag(self, partitions: Iterable[Partition]) -> None:
        """Reconsider the partitions whose followers may have fallen behind."""
        for partition in partitions:
            in_sync = partition.leading.in_sync
            if in_sync is not None and in_sync.followers:
                self.reconsider(partition)

    async def give_up(self, replicas: Sequence[ReplicaKey], *, damaged: bool = False) -> None:
        """Have others lead what cannot be served here; asked again until it is so."""
        entry = self._standing.entry
        if not replicas or entry.broker_epoch == UNREGISTERED:
            return
        own = self._standing.broker_id
        command = GiveUpReplicas(own, entry.broker_epoch, replicas, damaged=damaged)
        (answer,) = await self._submit_all([command])
        _log.warning(
            "replicas given up count=%d answer=%s",
            len(replicas), answer if isinstance(answer, KafkaError) else "done",
        )  # fmt: skip

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting or self._unanswered:
            self._collect()
            if not self._unanswered:
                await asyncio.sleep(0)
                continue
            asked = dict(self._unanswered)
            try:
                answers = await self._submit_all([self._command(*each) for each in asked.items()])
            except KafkaError as error:
                answers = [error] * len(asked)
            except OSError as error:
                unknown = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
                answers = [unknown] * len(asked)
            assert len(answers) == len(asked), "an answer for each proposal"
            for (partition, proposal), answer in zip(asked.items(), answers, strict=True):
                with suppress(PartitionBrokenError):  # It is offline and has said why.
                    self._settle(partition, proposal, answer)
            if self._unanswered:
                await asyncio.sleep(_RETRY_SECONDS)

    def _collect(self) -> None:
        """Take the next proposals, beside those that have to be asked for again."""
        for partition, proposal in tuple(self._unanswered.items()):
            if not partition.leading.awaits(proposal):
                del self._unanswered[partition]
        if self._standing.entry.broker_epoch == UNREGISTERED:
            self._waiting.clear()
            return
        for _ in range(min(len(self._waiting), _LOOKS_PER_TURN)):
            if len(self._unanswered) >= _TOGETHER_MAX:
                return
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            proposed = partition.leading.propose()
            if proposed is not None:
                self._unanswered[partition] = proposed

    def _command(self, partition: Partition, proposal: Proposal) -> AlterPartition:
        standing = self._standing
        return AlterPartition(
            standing.broker_id,
            standing.entry.broker_epoch,
            partition.topic_id,
            partition.topic_partition.partition,
            proposal,
        )

    def _settle(
        self, partition: Partition, proposal: Proposal, answer: Answer | KafkaError
    ) -> None:
        if isinstance(answer, KafkaError):
            if answer.code in _REFUSED:
                _log.warning(
                    "in-sync set not changed partition=%s reason=%s",
                    partition.topic_partition, answer,
                )  # fmt: skip
                self._decided(partition, proposal, None)
            elif answer.code in _OVERTAKEN:
                del self._unanswered[partition]
            return
        assert isinstance(answer, PartitionDecided), "what AlterPartition is answered with"
        self._decided(partition, proposal, answer)

    def _decided(
        self, partition: Partition, proposal: Proposal, answer: PartitionDecided | None
    ) -> None:
        del self._unanswered[partition]
        before = partition.isr
        with partition.contained:
            partition.leading.decided(proposal, None if answer is None else answer.state)
        if answer is not None and partition.leading.lacks_followers:
            # Another may have caught up meanwhile. Who has all of the log is not heard of again.
            self._waiting[partition] = None
        if partition.isr != before:
            _log.info(
                "in-sync set changed partition=%s isr=%s partition_epoch=%d",
                partition.topic_partition, ",".join(map(str, partition.isr)),
                proposal.partition_epoch + 1,
            )  # fmt: skip
