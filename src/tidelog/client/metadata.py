"""What the client knows of a cluster: its brokers, its topics, and who leads each partition.

A node is a broker's id, or below `CONTROLLER` one of the bootstrap addresses, which have no id
until metadata names it. Topics are kept as the broker gave them, unknown ones with their error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.client.settings import ClientSettings
from tidelog.errors import ConfigError
from tidelog.host.clock import Clock, SystemClock
from tidelog.model import NO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    from tidelog.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition

ANY = -1
CONTROLLER = -2
_FIRST_BOOTSTRAP = -3
DEFAULT_PORT = 9092


@dataclass(slots=True)
class BrokerNode:
    """A broker as metadata names it."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class PartitionMetadata:
    """Who holds a partition."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]
    error_code: int


@dataclass(slots=True)
class TopicMetadata:
    """A topic and its partitions by number."""

    name: str
    topic_id: UUID
    error_code: int
    internal: bool
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)


def parse_bootstrap(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """`host:port,[::1]:9093,host` as addresses; the port is 9092 where none is named."""
    entries = servers.split(",") if isinstance(servers, str) else servers
    addresses = [_parse_address(entry.strip()) for entry in entries if entry.strip()]
    if not addresses:
        raise ConfigError("no bootstrap server is named; give HOST:PORT")
    return addresses


def _parse_address(entry: str) -> tuple[str, int]:
    bare = entry.rpartition("://")[2]
    if bare.startswith("["):
        host, bracket, rest = bare[1:].partition("]")
        port = rest.removeprefix(":")
        valid = bool(bracket)
    elif bare.count(":") > 1:
        host, port, valid = bare, "", True
    else:
        host, _, port = bare.partition(":")
        valid = True
    if not valid or not host or (port and not port.isdecimal()) or int(port or 1) not in _PORTS:
        raise ConfigError(f"'{entry}' is no address; give HOST:PORT")
    return host, int(port) if port else DEFAULT_PORT


_PORTS = range(1, 65536)


class Cluster:
    """The metadata cache of one client, and how its nodes are found."""

    def __init__(
        self,
        servers: str | Iterable[str],
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.bootstrap = parse_bootstrap(servers)
        self.settings = settings or ClientSettings()
        self.clock: Clock = clock or SystemClock()
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerNode] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.topic_names: dict[UUID, str] = {}
        self._updated: dict[str, float] = {}
        self._failures: dict[int, float] = {}

    def address(self, node: int) -> tuple[str, int]:
        """Where a node listens; KeyError for a broker that metadata does not name."""
        if node <= _FIRST_BOOTSTRAP:
            return self.bootstrap[_FIRST_BOOTSTRAP - node]
        broker = self.brokers[node]
        return broker.host, broker.port

    def candidates(self, node: int) -> list[int]:
        """The nodes that can serve a call to `node`, best first."""
        if node >= 0:
            return [node] if node in self.brokers else []
        bootstrap = [_FIRST_BOOTSTRAP - index for index in range(len(self.bootstrap))]
        if node == CONTROLLER and self.controller_id in self.brokers:
            return [self.controller_id]
        # Who failed last is asked last, so that one broker that hangs does not hold up the rest.
        return sorted([*self.brokers, *bootstrap], key=lambda each: self._failures.get(each, 0.0))

    def note_failure(self, node: int) -> None:
        """A node could not be reached, or broke off."""
        self._failures[node] = self.clock.monotonic()

    def leader(self, topic: str, partition: int) -> int:
        """The broker id of a partition's leader, -1 where none is known."""
        known = self.topics.get(topic)
        state = known.partitions.get(partition) if known else None
        return state.leader if state else -1

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic, zero where the broker names none."""
        known = self.topics.get(topic)
        return known.topic_id if known else NO_TOPIC_ID

    def knows(self, topic: str) -> bool:
        """True where the topic's partitions are known, be they up to date or not."""
        known = self.topics.get(topic)
        return known is not None and not known.error_code

    def is_fresh(self, topic: str) -> bool:
        """True where the topic is known without error and younger than the age allowed."""
        known = self.topics.get(topic)
        if known is None or known.error_code:
            return False
        age = self.clock.monotonic() - self._updated[topic]
        return age * 1000 < self.settings.metadata_max_age_ms

    def forget(self, topics: Iterable[str]) -> None:
        """Make topics stale: the next look asks a broker again, what is known serves till then."""
        for topic in topics:
            if topic in self._updated:
                self._updated[topic] = float("-inf")

    def apply(self, response: MetadataResponse) -> None:
        """Take over a Metadata response; a leader with an older epoch than known is not."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            broker.node_id: BrokerNode(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        now = self.clock.monotonic()
        for topic in response.topics:
            name = topic.name or self.topic_names.get(topic.topic_id, "")
            known = TopicMetadata(name, topic.topic_id, topic.error_code, bool(topic.is_internal))
            before = self.topics.get(name)
            same_topic = before is not None and before.topic_id == topic.topic_id
            for entry in topic.partitions:
                fresh = _partition(entry)
                old = before.partitions.get(fresh.partition) if before and same_topic else None
                newer = old is None or fresh.leader_epoch < 0
                known.partitions[fresh.partition] = (
                    fresh if newer or old is None or fresh.leader_epoch >= old.leader_epoch else old
                )
            self.topics[name] = known
            self.topic_names[topic.topic_id] = name
            self._updated[name] = now

    def partitions_of(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Every partition of the topics that are known, in order."""
        return [
            TopicPartition(topic, partition)
            for topic in topics
            if topic in self.topics
            for partition in sorted(self.topics[topic].partitions)
        ]


def _partition(entry: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        entry.partition_index,
        entry.leader_id,
        entry.leader_epoch,
        list(entry.replica_nodes),
        list(entry.isr_nodes),
        list(entry.offline_replicas),
        entry.error_code,
    )
