"""A runtime over a shard that only counts, and a partition whose watermark moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from tests.unit.coordinators.helpers import BROKER, ManualPartition, Replicas
from tidelog.cluster.changes import Change
from tidelog.coordinators.internal_topic import InternalTopic
from tidelog.coordinators.kind import ShardKind
from tidelog.coordinators.outcome import Outcome, Reply
from tidelog.coordinators.runtime import CoordinatorRuntime
from tidelog.coordinators.timers import Now, TimerQueue
from tidelog.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.testing.virtual_loop import virtual_host

TOPIC = "__tallies"
TIMEOUT_MS = 5_000
# A number that a record has no room for.
TOO_LARGE = 1_000_000


class Tally:
    """A sum of the numbers in its log, negative ones aside, which are notes and no core."""

    def __init__(self) -> None:
        self.timers: TimerQueue[str] = TimerQueue()
        self.total = 0
        self.waiting: Reply[int] = Reply()

    def replay(self, record: int) -> None:
        self.total += max(0, record)

    def replay_pending(self, record: int, producer_id: int) -> None:
        raise AssertionError("nothing is in a transaction")

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        raise AssertionError("nothing is in a transaction")

    def loaded(self, now: Now) -> Iterator[Outcome]:
        return iter(())

    def changed(self, changes: Sequence[Change]) -> Iterator[Outcome]:
        return iter(())

    def due(self, now: Now) -> Iterator[Outcome]:
        for timer in self.timers.due(now.ms):
            assert timer != "broken", "a timer that must not be"
            if timer == "failing":
                raise LookupError("nobody thought of this")
            yield Outcome(None, [TOO_LARGE if timer == "large" else 1])

    def abandon(self, error: KafkaError) -> None:
        self.waiting.fail(error)

    def add(self, *numbers: int) -> Outcome:
        """The answer is the sum by then; the total, to those who wait for it."""
        waiting, self.waiting = self.waiting, Reply()
        waiting.resolve(self.total + sum(numbers))
        return Outcome(self.total + sum(numbers), list(numbers))

    def wait(self) -> Outcome:
        return Outcome(self.waiting)


def encode_number(number: int) -> tuple[bytes, bytes]:
    if number >= TOO_LARGE:
        raise ProtocolError("the number is too large")
    return b"n", str(number).encode()


def tallies(replicas: Replicas) -> ShardKind[Tally]:
    nobody: Any = None
    return ShardKind(
        InternalTopic(TOPIC, lambda: replicas.image, nobody, nobody),
        lambda partition: Tally(),
        encode_number,
        lambda key, value: int(value or b""),
        lambda: TIMEOUT_MS,
        is_core=lambda record: bool(record >= 0),
    )


class World:
    def __init__(self) -> None:
        self.replicas = Replicas(TOPIC)
        self.runtime = self.restart()

    @property
    def partition(self) -> ManualPartition:
        return self.replicas.partition

    def restart(self) -> CoordinatorRuntime[Tally]:
        replicas = cast("Any", self.replicas)
        self.runtime = CoordinatorRuntime(tallies(self.replicas), BROKER, replicas, virtual_host())
        self.runtime.start()
        return self.runtime

    def add(self, *numbers: int, core_only: bool = False) -> Any:
        return self.runtime.call("k", lambda shard, _: shard.add(*numbers), core_only=core_only)

    def wait(self, core_only: bool = False) -> asyncio.Future[int]:
        future = self.runtime.call("k", lambda shard, _: shard.wait(), core_only=core_only)
        assert isinstance(future, asyncio.Future)
        return future

    async def loaded(self) -> Any:
        """The total, once the shard is loaded."""
        while True:
            try:
                return self.runtime.call("k", lambda shard, _: Outcome(shard.total))
            except KafkaError as error:
                assert error.code in (
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
                )  # fmt: skip
                await asyncio.sleep(0.01)


async def code_of(future: asyncio.Future[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await future
    return raised.value.code
