"""The consumer's decisions: what to fetch from whom, what of it to show, what an error means.

Promises: each partition's records come in order, from the offset assigned on, none twice and none
left out that the broker keeps; control batches are never shown, and with READ_COMMITTED neither are
records of aborted transactions. One long-polling fetch is under way per leader, and another chunk
of each partition is fetched while one is being read; no more than two are held.

No socket and no clock: a shell sends what `calls` returns, reports with `finish`, and reads with
`take`. Left out: fetch sessions (every fetch is a full one, epoch -1), groups, fetching from
followers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.client.connection import Call
from tidelog.client.faults import NetworkError, UnreadableBatchError, error_code
from tidelog.client.metadata import Cluster
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.operation import (
    Action,
    Operation,
    UnknownTopicError,
    action_for,
    backoff_seconds,
    try_refresh,
)
from tidelog.client.settings import ConsumerSettings
from tidelog.errors import ErrorCode, KafkaError, ProtocolError, TidelogError
from tidelog.model import NO_TOPIC_ID, Isolation, TopicPartition
from tidelog.protocol.batches import (
    BatchHeader,
    Record,
    check_crc,
    control_record_type,
    decode_records,
    iterate_batches,
)

if TYPE_CHECKING:
    from tidelog.protocol.messages.fetch import FetchResponse, PartitionData

_TOPIC_ID_VERSION = 13
_CHUNKS_MAX = 2
# Just after its creation a broker may not know a topic yet.
_SEARCHES_MAX = 5
_ABORT_MARKER = 0
_FINAL_EPOCH = -1
_OFFSET_MAX = (1 << 63) - 1
_NEVER = float("inf")


@dataclass(slots=True)
class Chunk:
    """The records of one partition as one fetch brought them: whole batches, still encoded."""

    partition: TopicPartition
    fetch_offset: int
    next_offset: int
    records: memoryview
    # First offset and producer id of each aborted transaction, by offset.
    aborted: list[tuple[int, int]]


@dataclass(slots=True)
class Position:
    """How far one partition has been fetched and read."""

    partition: TopicPartition
    fetch_offset: int
    position: int
    # Nothing is fetched from this offset on.
    stop_offset: int = _OFFSET_MAX
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    chunks: deque[Chunk] = field(default_factory=deque)
    retry_at: float = 0.0
    attempts: int = 0
    error: TidelogError | None = None


@dataclass(slots=True, eq=False)
class FetchCall:
    """A fetch under way, and where each of its partitions was then."""

    call: Call
    offsets: dict[TopicPartition, int]


def visible_batches(chunk: Chunk, max_bytes: int) -> Iterator[tuple[int, BatchHeader]]:
    """The batches that are shown: no control batches, and none of an aborted transaction.

    `max_bytes` bounds inflating.
    """
    pending = deque(chunk.aborted)
    hidden: set[int] = set()
    for position, header in iterate_batches(chunk.records):
        while pending and pending[0][0] <= header.last_offset:
            hidden.add(pending.popleft()[1])
        if header.is_control:
            if _is_abort(chunk, position, header, max_bytes):
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            yield position, header


def _is_abort(chunk: Chunk, position: int, header: BatchHeader, max_bytes: int) -> bool:
    try:
        marker = decode_records(chunk.records, position, max_bytes=max_bytes)
        return bool(marker) and control_record_type(marker[0]) == _ABORT_MARKER
    except (KafkaError, ProtocolError) as error:
        raise UnreadableBatchError(chunk.partition, header, error) from error


class FetcherCore:
    """Everything of a consumer but its sockets; see the module's docstring."""

    def __init__(self, settings: ConsumerSettings, cluster: Cluster) -> None:
        self.settings = settings
        self.cluster = cluster
        self.positions: dict[TopicPartition, Position] = {}
        # Called with the offset that the log does not hold and the one that is read in its place.
        self.on_jump: Callable[[TopicPartition, int, int], None] | None = None
        # The last failure to reach a broker, until one answers again; retried by itself.
        self.trouble: TidelogError | None = None
        self._busy: set[int] = set()
        self._stale: set[str] = set()
        self._out_of_range: list[TopicPartition] = []

    def assign(
        self, offsets: dict[TopicPartition, int], stops: dict[TopicPartition, int] | None = None
    ) -> None:
        """Read these partitions from these offsets, and no others; a `stop` bounds the fetching.

        The last chunk of a partition may hold records behind its stop.
        """
        ends = stops or {}
        self.positions = {
            tp: Position(tp, offset, offset, ends.get(tp, _OFFSET_MAX))
            for tp, offset in offsets.items()
        }

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from another offset; what was fetched ahead is dropped."""
        self.positions[partition] = Position(partition, offset, offset)

    def calls(self, now: float) -> list[FetchCall]:
        """The fetches to send now; each is reported with `finish` when it is over."""
        by_leader: dict[int, list[Position]] = {}
        for state in self.positions.values():
            if len(state.chunks) >= _CHUNKS_MAX or state.retry_at > now or state.error:
                continue
            if state.fetch_offset >= state.stop_offset:
                continue
            node = self.cluster.leader(*state.partition)
            if node < 0:
                self._search(state, now)
            elif node not in self._busy:
                by_leader.setdefault(node, []).append(state)
        return [self._call(node, states) for node, states in by_leader.items()]

    def _search(self, state: Position, now: float) -> None:
        """Nobody leads the partition: look again, unless its topic is gone for good."""
        topic = state.partition.topic
        known = self.cluster.topics.get(topic)
        gone = known is None or known.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if gone and state.attempts >= _SEARCHES_MAX:
            state.error = UnknownTopicError(topic)
            return
        self._stale.add(topic)
        self._back_off(state, now)

    def _call(self, node: int, states: list[Position]) -> FetchCall:
        from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

        topics: dict[str, FetchTopic] = {}
        for state in states:
            name, number = state.partition
            topic = topics.get(name)
            if topic is None:
                topic_id = self.cluster.topic_id(name)
                topic = topics[name] = FetchTopic(topic=name, topic_id=topic_id)
            epoch = self.cluster.topics[name].partitions[number].leader_epoch
            topic.partitions.append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=epoch,
                    fetch_offset=state.fetch_offset,
                    partition_max_bytes=self.settings.partition_max_bytes,
                )
            )
        # With something to read in hand the answer is not waited for, so it need not linger.
        idle = not any(state.chunks for state in self.positions.values())
        request = FetchRequest(
            max_wait_ms=self.settings.max_wait_ms if idle else 0,
            min_bytes=self.settings.min_bytes,
            max_bytes=self.settings.max_bytes,
            isolation_level=int(self.settings.isolation),
            session_epoch=_FINAL_EPOCH,
            topics=list(topics.values()),
        )
        call = Call(node, "Fetch", request)
        if any(topic.topic_id == NO_TOPIC_ID for topic in topics.values()):
            call.max_version = _TOPIC_ID_VERSION - 1
        self._busy.add(node)
        return FetchCall(call, {state.partition: state.fetch_offset for state in states})

    def finish(self, fetch: FetchCall, outcome: object, now: float) -> None:
        """Report what became of a fetch: its response or its error."""
        self._busy.discard(fetch.call.node)
        if isinstance(outcome, TidelogError):
            self._failed(fetch, outcome, now)
        else:
            self._take_response(fetch, outcome, now)  # type: ignore[arg-type]

    def _failed(self, fetch: FetchCall, error: TidelogError, now: float) -> None:
        self.trouble = error
        for tp in self._still_wanted(fetch):
            state = self.positions[tp]
            if isinstance(error, NetworkError):
                self._stale.add(tp.topic)
                self._back_off(state, now)
            else:
                state.error = error

    def _still_wanted(self, fetch: FetchCall) -> list[TopicPartition]:
        """Without the partitions that were dropped or moved while the fetch was under way."""
        return [
            tp
            for tp, offset in fetch.offsets.items()
            if tp in self.positions and self.positions[tp].fetch_offset == offset
        ]

    def _take_response(self, fetch: FetchCall, response: FetchResponse, now: float) -> None:
        if response.error_code:
            code = error_code(response.error_code)
            self._failed(fetch, KafkaError(code), now)
            return
        self.trouble = None
        wanted = set(self._still_wanted(fetch))
        for topic in response.responses:
            name = topic.topic or self.cluster.topic_names.get(topic.topic_id, "")
            for data in topic.partitions:
                tp = TopicPartition(name, data.partition_index)
                if tp in wanted:
                    self._take_partition(self.positions[tp], data, now)

    def _take_partition(self, state: Position, data: PartitionData, now: float) -> None:
        if data.error_code:
            self._refused(state, KafkaError(error_code(data.error_code)), now)
            return
        state.attempts = 0
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        records = data.records
        if not records:
            return
        assert isinstance(records, memoryview), "decoded records are a view of their frame"
        view = records
        next_offset = state.fetch_offset
        for position, header in iterate_batches(view):
            if self.settings.check_crcs and not check_crc(view, position, header.size_bytes):
                damage = ProtocolError("its checksum is wrong")
                state.error = UnreadableBatchError(state.partition, header, damage)
                # What came before it is shown first.
                view = view[:position]
                break
            next_offset = header.last_offset + 1
        if next_offset <= state.fetch_offset:
            return
        committed_only = self.settings.isolation is Isolation.READ_COMMITTED
        named = data.aborted_transactions if committed_only else None
        aborted = sorted((entry.first_offset, entry.producer_id) for entry in named or ())
        state.chunks.append(Chunk(state.partition, state.fetch_offset, next_offset, view, aborted))
        state.fetch_offset = next_offset

    def _refused(self, state: Position, error: KafkaError, now: float) -> None:
        action = action_for(error.code)
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE and self.settings.out_of_range != "error":
            self._out_of_range.append(state.partition)
            self._back_off(state, now)
        elif action is Action.FAIL:
            state.error = KafkaError(error.code, f"{state.partition}: {error.message}")
        else:
            if action is Action.REFRESH:
                self._stale.add(state.partition.topic)
            self._back_off(state, now)

    def _back_off(self, state: Position, now: float) -> None:
        state.attempts += 1
        state.retry_at = now + backoff_seconds(self.cluster, state.attempts)

    @property
    def has_chunks(self) -> bool:
        """True where `take` has something to give."""
        return any(state.chunks for state in self.positions.values())

    @property
    def has_output(self) -> bool:
        """True where `take` has something to give or to raise."""
        return any(state.chunks or state.error for state in self.positions.values())

    def take_chunk(self) -> Chunk | None:
        """The next chunk as it came, for who decodes for himself; None where none is there.

        An error that ends a partition is raised once what came before it has been taken.
        """
        for state in self.positions.values():
            if state.chunks:
                chunk = state.chunks.popleft()
                state.position = chunk.next_offset
                # Turn by turn, so that one busy partition does not starve the others.
                self.positions[state.partition] = self.positions.pop(state.partition)
                return chunk
        for state in self.positions.values():
            if state.error is not None:
                error, state.error = state.error, None
                state.retry_at = _NEVER
                raise error
        return None

    def take(self) -> tuple[TopicPartition, list[Record]] | None:
        """The next records of one partition; the list may be empty where all were hidden.

        A batch that cannot be read ends the partition: an error is raised once all that came before
        it has been taken, and the position stays there. `seek` goes past it.
        """
        chunk = self.take_chunk()
        if chunk is None:
            return None
        records: list[Record] = []
        try:
            for found in self._records(chunk):
                records += found
        except UnreadableBatchError as error:
            state = self.positions[chunk.partition]
            state.error = error
            state.chunks.clear()
            state.position = state.fetch_offset = max(error.first_offset, chunk.fetch_offset)
        except BaseException:
            # Interrupted: what was not handed out is not consumed.
            self.seek(chunk.partition, chunk.fetch_offset)
            raise
        return chunk.partition, records

    def _records(self, chunk: Chunk) -> Iterator[list[Record]]:
        limit = self.settings.max_decompressed_bytes
        for position, header in visible_batches(chunk, limit):
            try:
                records = decode_records(chunk.records, position, max_bytes=limit)
            except (KafkaError, ProtocolError) as error:
                raise UnreadableBatchError(chunk.partition, header, error) from error
            if header.base_offset < chunk.fetch_offset:
                records = [each for each in records if each.offset >= chunk.fetch_offset]
            yield records

    def prepare(self) -> Operation[None]:
        """Have what the next calls need: metadata that is not stale, and offsets in their logs."""
        stale = self.take_stale_topics()
        if stale:
            yield from try_refresh(self.cluster, stale)
        lost = self.take_out_of_range()
        if not lost:
            return
        end = EARLIEST if self.settings.out_of_range == "earliest" else LATEST
        found = yield from list_offsets(self.cluster, dict.fromkeys(lost, end))
        for partition, place in found.items():
            state = self.positions.get(partition)
            if state is None:
                # Nobody wants it any more.
                continue
            if self.on_jump is not None:
                self.on_jump(partition, state.fetch_offset, place.offset)
            self.seek(partition, place.offset)

    def take_stale_topics(self) -> set[str]:
        """The topics whose metadata must be fetched before their partitions can be."""
        stale, self._stale = self._stale, set()
        self.cluster.forget(stale)
        return stale

    def take_out_of_range(self) -> list[TopicPartition]:
        """The partitions to be set to one end of their log, as the settings ask for."""
        partitions, self._out_of_range = self._out_of_range, []
        return partitions

    def next_wakeup(self, now: float) -> float | None:
        """When `calls` may have something new though no answer has come."""
        times = [state.retry_at for state in self.positions.values()]
        return min((moment for moment in times if now < moment < _NEVER), default=None)
