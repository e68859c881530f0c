"""What the runtime has to know of a kind of shard: groups, and whatever else is coordinated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from tidelog.cluster.changes import Change
from tidelog.coordinators.internal_topic import InternalTopic
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now, TimerQueue
from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.partition import Partition


class Shard(Protocol):
    """A state machine whose state is the replay of its records, and deadlines beside it."""

    @property
    def timers(self) -> TimerQueue[Any]: ...

    def replay(self, record: Any) -> None:
        """Apply one record of the log, in its order."""

    def due(self, now: Now) -> Iterator[Outcome]:
        """What became due; each outcome must be dealt with before the next is asked for."""

    def abandon(self, error: KafkaError) -> None:
        """The shard is another broker's now: tell whoever waits."""


S = TypeVar("S", bound=Shard)


class ShardKind(ABC, Generic[S]):
    """How shards of one kind are kept, made and answered for."""

    topic: InternalTopic
    # Which changes of the metadata `changed` is to hear of.
    heeds: tuple[type[Change], ...] = ()

    @abstractmethod
    def new_shard(self, partition: Partition) -> S: ...

    @abstractmethod
    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """A record as key and value."""

    @abstractmethod
    def decode(self, key: bytes | None, value: bytes | None) -> Any | None:
        """A record out of key and value; None for one that means nothing to this version."""

    @property
    @abstractmethod
    def commit_timeout_ms(self) -> int:
        """How long an answer may wait until what it rests on is committed."""

    def is_core(self, record: Any) -> bool:
        """Whether every answer rests on such records, and not only those that show them."""
        return True

    def appended(self, records: Iterable[Any]) -> None:
        """These are in the log, for whoever counts."""

    def loaded(self, shard: S, now: Now) -> Iterator[Outcome]:
        """What is to be done once the whole log has been replayed."""
        return iter(())

    def changed(self, shard: S, changes: Sequence[Change]) -> Iterator[Outcome]:
        """What changes of the metadata mean for a shard."""
        return iter(())

    def refusal(self, error: KafkaError) -> KafkaError:
        """What a client is told where the log of its shard failed: all of it can be tried again."""
        if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            return KafkaError(ErrorCode.NOT_COORDINATOR, str(error))
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
