"""What the runtime has to know of a kind of shard: groups, and whatever else is coordinated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tidelog.cluster.changes import Change
from tidelog.coordinators.internal_topic import InternalTopic
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now, TimerQueue
from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.partition import Partition


class Shard(Protocol):
    """A state machine whose state is the replay of its records, and deadlines beside it.

    Each outcome must be dealt with before the next is asked for.
    """

    @property
    def timers(self) -> TimerQueue[Any]: ...

    def replay(self, record: Any) -> None:
        """Apply one record of the log, in its order."""

    def replay_pending(self, record: Any, producer_id: int) -> None:
        """Apply one record of a producer's transaction, which may yet be aborted."""

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """The transaction of a producer ended in this log."""

    def loaded(self, now: Now) -> Iterator[Outcome]:
        """The whole log has been replayed."""

    def due(self, now: Now) -> Iterator[Outcome]:
        """Time has passed."""

    def changed(self, changes: Sequence[Change]) -> Iterator[Outcome]:
        """The metadata changed, in what the kind heeds."""

    def abandon(self, error: KafkaError) -> None:
        """The shard is another broker's now: tell whoever waits."""


S = TypeVar("S", bound=Shard)


def retriable(error: KafkaError) -> KafkaError:
    """What a client is told where the log of its shard failed: all of it can be tried again."""
    moved = error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
    code = ErrorCode.NOT_COORDINATOR if moved else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return KafkaError(code, str(error))


@dataclass(slots=True, eq=False)
class ShardKind(Generic[S]):
    """How shards of one kind are kept, made and answered for."""

    topic: InternalTopic
    new_shard: Callable[[Partition], S]
    # Records to keys and values and back; None for one that means nothing to this version.
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    decode: Callable[[bytes | None, bytes | None], Any | None]
    # How long an answer may wait until what it rests on is committed.
    commit_timeout_ms: Callable[[], int]
    # Whether every answer rests on such a record, and not only those that show it.
    is_core: Callable[[Any], bool] = lambda record: True
    # Which changes of the metadata its shards hear of.
    heeds: tuple[type[Change], ...] = ()
    refusal: Callable[[KafkaError], KafkaError] = retriable
