"""Operations: what takes several requests, written once as generators and driven by both shells.

An operation yields a list of calls and gets their outcomes back in the same order, each the
decoded response or the `TidelogError` that kept it away; or it yields a `Pause`. It never touches
a socket. Nothing in it depends on which shell drives it, so a retry policy is a function too.

    def ping(cluster: Cluster) -> Operation[str]:
        response = yield from ask(Call(ANY, "DescribeCluster", DescribeClusterRequest()))
        return response.cluster_id
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from tidelog.client.connection import Call
from tidelog.client.faults import ConnectError, NetworkError, error_code, raise_for
from tidelog.client.metadata import ANY, Cluster, TopicMetadata
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import TopicPartition

T = TypeVar("T")
P = ParamSpec("P")
# How long an impatient client tries brokers that accept it and answer nothing.
_UNANSWERED_S = 3.0


@dataclass(slots=True)
class Pause:
    """Wait this long before going on."""

    seconds: float


Step = list[Call] | Pause
Operation = Generator[Step, Any, T]


@dataclass(slots=True)
class Finished(Generic[T]):
    """An operation has come to its end."""

    result: T


def next_step(operation: Operation[T], outcomes: list[object] | None) -> Step | Finished[T]:
    """What an operation wants next, given the outcomes of its calls; its error is raised."""
    try:
        return operation.send(outcomes)
    except StopIteration as stop:
        return Finished(stop.value)


@dataclass(slots=True)
class Outcome(Generic[T]):
    """What became of one operation among several: a result, or an error."""

    result: T | None = None
    error: TidelogError | None = None


class Action(Enum):
    """What a client does about an error code."""

    RETRY = "retry"
    REFRESH = "refresh"
    FAIL = "fail"


# The broker asked is not the one in charge (any more): metadata tells who is.
_STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


def action_for(code: int) -> Action:
    """The retry policy: whether an error passes by itself, and whether metadata is stale."""
    known = error_code(code)
    if known in _STALE_METADATA:
        return Action.REFRESH
    return Action.RETRY if known.retriable else Action.FAIL


def backoff_seconds(cluster: Cluster, attempt: int) -> float:
    """The pause before attempt number `attempt` (from 1): doubling, up to the limit set."""
    settings = cluster.settings
    delay_ms = settings.retry_backoff_ms << min(attempt - 1, 16)
    return min(delay_ms, settings.retry_backoff_max_ms) / 1000


def ask(call: Call) -> Operation[Any]:
    """Send one call; its response, or its error raised."""
    outcomes = yield [call]
    if isinstance(outcomes[0], TidelogError):
        raise outcomes[0]
    return outcomes[0]


def retrying(cluster: Cluster, attempt: Callable[[], Operation[T]]) -> Operation[T]:
    """Run `attempt` until it succeeds, fails for good, or the operation's time is over."""
    began = cluster.clock.monotonic()
    deadline = began + cluster.settings.operation_timeout_ms / 1000
    tries = 0
    while True:
        tries += 1
        try:
            return (yield from attempt())
        except (NetworkError, KafkaError) as error:
            stale = isinstance(error, NetworkError)
            if stale and cluster.settings.fail_fast and not cluster.brokers:
                # Who closes every connection may want TLS or SASL, and does not say so.
                waited_s = cluster.clock.monotonic() - began
                if isinstance(error, ConnectError) or waited_s >= _UNANSWERED_S:
                    raise
            if isinstance(error, KafkaError):
                action = action_for(error.code)
                if action is Action.FAIL:
                    raise
                stale = action is Action.REFRESH
            pause = backoff_seconds(cluster, tries)
            if cluster.clock.monotonic() + pause >= deadline:
                raise
            yield Pause(pause)
            if stale:
                cluster.forget(list(cluster.topics))
                yield from try_refresh(cluster, ())


def retried(
    operation: Callable[Concatenate[Cluster, P], Operation[T]],
) -> Callable[Concatenate[Cluster, P], Operation[T]]:
    """The operation, begun anew as often as `retrying` allows."""

    @wraps(operation)
    def persistent(cluster: Cluster, /, *args: P.args, **kwargs: P.kwargs) -> Operation[T]:
        return (yield from retrying(cluster, lambda: operation(cluster, *args, **kwargs)))

    return persistent


def together(cluster: Cluster, operations: Sequence[Operation[T]]) -> Operation[list[Outcome[T]]]:
    """Several operations at the same time: what each came to, its error included."""
    outcomes: list[Outcome[T]] = [Outcome() for _ in operations]
    # What each that goes on is waiting for: the outcomes of its calls, or a time.
    ready: dict[int, list[object] | None] = dict.fromkeys(range(len(operations)))
    paused: dict[int, float] = {}
    while ready or paused:
        now = cluster.clock.monotonic()
        ready |= dict.fromkeys(each for each, until in paused.items() if until <= now)
        paused = {each: until for each, until in paused.items() if until > now}
        asked: dict[int, list[Call]] = {}
        for number, answers in ready.items():
            try:
                step = next_step(operations[number], answers)
            except TidelogError as error:
                outcomes[number].error = error
                continue
            if isinstance(step, Finished):
                outcomes[number].result = step.result
            elif isinstance(step, Pause):
                paused[number] = now + step.seconds
            else:
                asked[number] = step
        ready = {}
        if asked:
            found = iter((yield [call for calls in asked.values() for call in calls]))
            ready |= {number: [next(found) for _ in calls] for number, calls in asked.items()}
        elif paused:
            yield Pause(max(0.0, min(paused.values()) - cluster.clock.monotonic()))
    return outcomes


def refresh(
    cluster: Cluster, topics: Sequence[str] | None = None, *, create: bool = False
) -> Operation[None]:
    """Ask any broker for metadata: of `topics`, or of all; unknown topics are noted, not raised."""
    from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
    response = yield from ask(Call(ANY, "Metadata", request))
    raise_for(getattr(response, "error_code", 0))
    if topics is None:
        cluster.topics.clear()
    cluster.apply(response)


def try_refresh(
    cluster: Cluster, topics: Iterable[str], *, create: bool = False
) -> Operation[None]:
    """`refresh` once; where no broker answers, what is known stays and the caller comes again."""
    try:
        yield from refresh(cluster, sorted(topics), create=create)
    except (NetworkError, KafkaError):
        return


@retried
def topic_metadata(
    cluster: Cluster, topics: Sequence[str], *, create: bool = False
) -> Operation[dict[str, TopicMetadata]]:
    """The metadata of topics, from the cache where fresh; waits for one that is being created.

    KafkaError with UNKNOWN_TOPIC_OR_PARTITION at once where the topic does not exist, unless
    `create` asks the broker to create it, which may take a few tries to show.
    """
    missing = [topic for topic in topics if not cluster.is_fresh(topic)]
    if missing:
        yield from refresh(cluster, missing, create=create)
    for topic in topics:
        known = cluster.topics.get(topic)
        code = known.error_code if known else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create:
            raise UnknownTopicError(topic)
        raise_for(code, f"topic '{topic}': {error_code(code).message}")
    return {topic: cluster.topics[topic] for topic in topics}


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions under the names of their topics, as requests name them."""
    topics: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp)
    return topics


def answered(response: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """What a response says of each partition; the first error in it is raised."""
    for topic in response.topics:
        for part in topic.partitions:
            raise_for(part.error_code)
            yield TopicPartition(topic.name, part.partition_index), part


class UnknownTopicError(TidelogError):
    """The topic does not exist; final, unlike the retriable error code that brokers use for it."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic '{topic}' does not exist")
        self.topic = topic


class UnknownPartitionError(UnknownTopicError):
    """The topic exists, but has no partition of that number."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(partition.topic)
        self.args = (f"topic '{partition.topic}' has no partition {partition.partition}",)
