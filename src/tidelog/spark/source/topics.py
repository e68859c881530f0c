"""What the driver asks of a cluster: which partitions there are, where their logs begin and end.

Everything here is a round trip or two; nothing is remembered but the client's metadata, which is
asked for again when it is older than `kafka.metadata.max.age.ms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from tidelog.client.blocking import Client
from tidelog.client.connection import Call
from tidelog.client.faults import UnsupportedApiError, error_code, raise_for
from tidelog.client.group_admin import commit_offsets, committed_offsets
from tidelog.client.metadata import Cluster
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets, offsets_within
from tidelog.client.operation import Operation, Pause, UnknownTopicError, refresh, retrying
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_TOPIC_ID, Isolation, TopicPartition
from tidelog.protocol.batches import iterate_batches
from tidelog.spark.option_values import OptionError
from tidelog.spark.source.limits import share_bytes
from tidelog.spark.source.offsets import Offsets
from tidelog.spark.source.read_options import Place, ReadOptions

_BY_NAME_VERSION = 12
# What is read to find out how large the records of a partition are.
_SAMPLE_BYTES = 64 << 10
_UNBOUNDED = 1 << 62


class Topics:
    """The topics of one query, as the cluster has them now."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._isolation = options.consumer.isolation
        self._client = Client(options.bootstrap_servers, options.consumer.client)
        self._refreshed_at = float("-inf")

    def close(self) -> None:
        self._client.close()

    def partitions(self, *, fresh: bool = False) -> list[TopicPartition]:
        """The partitions that the query is to read, in order.

        A topic named that does not exist is an error for a query that begins; `known_partitions`
        leaves it out.
        """
        self._refresh(fresh=fresh)
        selection = self._options.selection
        known = self._known()
        for topic in selection.topics:
            if topic not in known:
                raise UnknownTopicError(topic)
        for tp in selection.partitions:
            if tp.topic not in known or tp.partition not in known[tp.topic]:
                raise TidelogError(f"there is no partition {tp}")
        return self._selected(known)

    def known_partitions(self, *, fresh: bool = False) -> list[TopicPartition]:
        """As `partitions`, without those that are not there (any more)."""
        self._refresh(fresh=fresh)
        return self._selected(self._known())

    def _known(self) -> dict[str, list[int]]:
        return {
            name: sorted(topic.partitions)
            for name, topic in self._client.cluster.topics.items()
            if not topic.error_code
        }

    def _selected(self, known: dict[str, list[int]]) -> list[TopicPartition]:
        selection = self._options.selection
        if selection.partitions:
            return [tp for tp in selection.partitions if tp.partition in known.get(tp.topic, ())]
        topics = [name for name in known if name in selection.topics]
        if selection.pattern:
            pattern = re.compile(selection.pattern)
            internal = self._client.cluster.topics
            topics = [
                name for name in known if pattern.search(name) and not internal[name].internal
            ]
        return [TopicPartition(name, each) for name in sorted(topics) for each in known[name]]

    def _refresh(self, *, fresh: bool) -> None:
        cluster = self._client.cluster
        now = cluster.clock.monotonic()
        if not fresh and (now - self._refreshed_at) * 1000 < cluster.settings.metadata_max_age_ms:
            return
        selection = self._options.selection
        names: Sequence[str] | None = sorted(
            {*selection.topics, *(tp.topic for tp in selection.partitions)}
        )
        if selection.pattern:
            names = None
        self._client.run(retrying(cluster, lambda: _refreshed(cluster, names)))
        self._refreshed_at = now

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic, zero where the broker names none."""
        return self._client.cluster.topic_id(topic)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics, where the broker names any."""
        ids = {name: self.topic_id(name) for name in topics}
        return {name: str(each) for name, each in ids.items() if each != NO_TOPIC_ID}

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where the logs begin."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where the logs end: for read_committed, the last stable offset."""
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def behind_stable(self, ends: Mapping[TopicPartition, int]) -> Offsets:
        """How many offsets stand behind these ends, where any do; the ends are stable ones."""
        if not ends or self._isolation is not Isolation.READ_COMMITTED:
            return {}
        found = self._client.run(list_offsets(self._client.cluster, dict.fromkeys(ends, LATEST)))
        return {tp: found[tp].offset - end for tp, end in ends.items() if found[tp].offset > end}

    def _offsets(self, wanted: Offsets) -> Offsets:
        if not wanted:
            return {}
        cluster = self._client.cluster
        found = self._client.run(list_offsets(cluster, wanted, self._isolation))
        return {tp: place.offset for tp, place in found.items()}

    def resolve(self, place: Place, partitions: Sequence[TopicPartition], what: str) -> Offsets:
        """The offsets that a starting or ending place stands for; `what` names the option."""
        if place.kind in ("earliest", "latest"):
            ends = self.earliest if place.kind == "earliest" else self.latest
            return ends(partitions)
        if place.kind == "group":
            found = self._client.run(
                committed_offsets(self._client.cluster, place.group, partitions)
            )
            missing = [tp for tp in partitions if tp not in found]
            return {**self.earliest(missing), **found}
        if place.kind == "time":
            return self._by_time(dict.fromkeys(partitions, place.timestamp_ms), what)
        given = place.per_partition
        if set(given) != set(partitions):
            unnamed = sorted(str(tp) for tp in set(partitions) - set(given))
            unknown = sorted(str(tp) for tp in set(given) - set(partitions))
            parts = [f"{', '.join(unnamed)} without an offset"] if unnamed else []
            parts += [f"{', '.join(unknown)} not among the partitions read"] if unknown else []
            raise OptionError(
                f"option '{what}' must name every partition that is read, and no other "
                f"(-1 stands for latest, -2 for earliest): {'; '.join(parts)}"
            )
        if place.kind == "times":
            return self._by_time(given, what)
        offsets = dict(given)
        offsets |= self.latest([tp for tp, offset in given.items() if offset == LATEST])
        offsets |= self.earliest([tp for tp, offset in given.items() if offset == EARLIEST])
        return offsets

    def _by_time(self, times: Offsets, what: str) -> Offsets:
        found = self._offsets(times)
        missing = [tp for tp, offset in found.items() if offset < 0]
        starting = what.startswith("starting")
        if missing and starting and not self._options.missing_time_is_end:
            names = ", ".join(str(tp) for tp in missing)
            raise OptionError(
                f"there is no record at or after the starting time in {names}; "
                "startingOffsetsByTimestampStrategy=latest begins at the end instead"
            )
        return {**found, **self.latest(missing)}

    def commit(self, group: str, offsets: Offsets) -> None:
        """Let the group remember how far the query is."""
        self._client.run(commit_offsets(self._client.cluster, group, offsets))

    def wait_for_more(self, ends: Offsets, wait_ms: int) -> None:
        """Come back when something was appended behind these ends, or the time is over."""
        calls = []
        by_leader: dict[int, Offsets] = {}
        for tp, offset in ends.items():
            leader = self._client.cluster.leader(*tp)
            if leader >= 0:
                by_leader.setdefault(leader, {})[tp] = offset
        for leader, offsets in by_leader.items():
            calls.append(self._fetch(leader, offsets, max_bytes=1, wait_ms=wait_ms))
        # Whatever went wrong will go wrong again where it matters.
        self._client.run(_all_of(calls) if calls else _pause(wait_ms / 1000))

    def within_bytes(self, starts: Offsets, ends: Offsets, max_bytes: int) -> Offsets:
        """Where to stop so that what lies between is `max_bytes` at most, shared out by size.

        Exact where the broker can tell (a Tidelog), else reckoned from the first batches.
        """
        behind = {tp: starts[tp] for tp, end in ends.items() if end > starts[tp]}
        if not behind:
            return ends
        try:
            return {**ends, **self._measured(behind, ends, max_bytes)}
        except UnsupportedApiError:
            return share_bytes(starts, ends, self._row_bytes(behind), max_bytes)

    def _measured(self, starts: Offsets, ends: Offsets, max_bytes: int) -> Offsets:
        everything = self._reach({tp: (offset, _UNBOUNDED) for tp, offset in starts.items()})
        total = sum(size for _, size in everything.values())
        if total <= max_bytes:
            return {}
        shares = {
            tp: (starts[tp], size * max_bytes // total) for tp, (_, size) in everything.items()
        }
        return {tp: min(ends[tp], end) for tp, (end, _) in self._reach(shares).items()}

    def _reach(
        self, wanted: dict[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return self._client.run(offsets_within(self._client.cluster, wanted, self._isolation))

    def _row_bytes(self, starts: Offsets) -> dict[TopicPartition, float]:
        """About how many bytes of log an offset takes, from the first batches of each partition."""
        sizes: dict[TopicPartition, float] = {}
        calls, partitions = [], []
        for tp, offset in starts.items():
            leader = self._client.cluster.leader(*tp)
            if leader >= 0:
                calls.append(self._fetch(leader, {tp: offset}, max_bytes=_SAMPLE_BYTES, wait_ms=0))
                partitions.append(tp)
        for tp, outcome in zip(partitions, self._client.run(_all_of(calls)), strict=True):
            if isinstance(outcome, TidelogError) or outcome.error_code:
                continue
            [data] = outcome.responses[0].partitions
            if data.error_code != ErrorCode.NONE or not data.records:
                continue
            headers = [header for _, header in iterate_batches(data.records)]
            if headers:
                rows = headers[-1].last_offset + 1 - headers[0].base_offset
                sizes[tp] = sum(header.size_bytes for header in headers) / max(1, rows)
        return sizes

    def _fetch(self, leader: int, offsets: Offsets, *, max_bytes: int, wait_ms: int) -> Call:
        from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

        topics: dict[str, FetchTopic] = {}
        for tp, offset in offsets.items():
            topic = topics.setdefault(tp.topic, FetchTopic(topic=tp.topic, partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=tp.partition, fetch_offset=offset, partition_max_bytes=max_bytes
                )
            )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1 if wait_ms else 0,
            max_bytes=max_bytes,
            isolation_level=int(Isolation(self._isolation)),
            topics=list(topics.values()),
        )
        return Call(leader, "Fetch", request, _BY_NAME_VERSION)


def _refreshed(cluster: Cluster, names: Sequence[str] | None) -> Operation[None]:
    """Metadata of these topics, or of all; a topic that only seems to be gone is an error."""
    yield from refresh(cluster, names)
    for name in names or ():
        code = cluster.topics[name].error_code if name in cluster.topics else 0
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise_for(code, f"topic '{name}': {error_code(code).message}")


def _pause(seconds: float) -> Operation[None]:
    yield Pause(seconds)


def _all_of(calls: list[Call]) -> Operation[list[Any]]:
    return (yield calls) if calls else []
