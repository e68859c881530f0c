"""What /metrics, /healthz and /readyz say."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidelog.coordinators.groups.coordinator import GroupCoordinator
from tidelog.model import TopicPartition
from tidelog.replication.mending import Mending
from tidelog.replication.replicas import Replicas
from tidelog.server.audit_log import AuditLog
from tidelog.server.cluster_status import ClusterStatus
from tidelog.server.fetch_sessions import FetchSessions
from tidelog.server.http import Page
from tidelog.server.logs import printable
from tidelog.server.metrics import BrokerMetrics, by, metric
from tidelog.server.request_memory import RequestMemory
from tidelog.server.transactions import Transactions
from tidelog.storage.log import Log

_LISTED_MAX = 100


def _listed(offline: dict[TopicPartition, str], what: str = "offline") -> str:
    """A line for each partition, up to a hundred of them."""
    lines = [
        f"{what} {topic}-{index}: {printable(reason)}\n"
        for (topic, index), reason in sorted(offline.items())[:_LISTED_MAX]
    ]
    if len(offline) > _LISTED_MAX:
        lines.append(f"and {len(offline) - _LISTED_MAX} more\n")
    return "".join(lines)


@dataclass(slots=True, frozen=True)
class StatusPages:
    """The pages of one broker, and what they tell of."""

    counted: BrokerMetrics
    replicas: Replicas
    mending: Mending
    groups: GroupCoordinator
    fetch_sessions: FetchSessions
    memory: RequestMemory
    cluster: ClusterStatus
    transactions: Transactions
    audit: AuditLog
    is_ready: Callable[[], bool]

    @property
    def routes(self) -> dict[str, Page]:
        return {"/metrics": self.metrics, "/healthz": self.healthz, "/readyz": self.readyz}

    def healthz(self) -> tuple[int, str]:
        return 200, "ok\n"

    def readyz(self) -> tuple[int, str]:
        if not self.is_ready():
            return 503, "stopping\n"
        not_ready = self.cluster.not_ready()
        if not_ready is not None:
            return 503, not_ready
        refusing = self.replicas.space.clients.refusal
        if refusing is not None:
            return 503, f"refusing writes: {refusing.message}\n"
        offline, damaged = self.replicas.offline, self.mending.damaged
        text = _listed(offline) + _listed(damaged, "damaged")
        if not offline:
            return 200, f"ready\n{text}"
        served = sum(each.topic_partition not in offline for each in self.replicas)
        if not served:
            return 503, f"every partition is offline\n{text}"
        count = f"{len(offline)} of {len(offline) + served}"
        return 200, f"ready, {count} partitions offline\n{text}"

    def metrics(self) -> tuple[int, str]:
        return 200, "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from self.counted.lines()
        yield from metric(
            "tidelog_log_size_bytes",
            "Bytes of a partition's log.",
            self._logs(lambda log: log.segments.size_bytes),
        )
        yield from metric(
            "tidelog_log_start_offset",
            "First offset of a log.",
            self._logs(lambda log: log.log_start_offset),
        )
        yield from metric(
            "tidelog_log_end_offset",
            "Next offset of a log.",
            self._logs(lambda log: log.log_end_offset),
        )
        yield from metric("tidelog_partitions", "Partitions held.", len(self.replicas))
        offline = self.replicas.offline
        yield from metric(
            "tidelog_offline_partitions", "Partitions whose disk failed.", len(offline)
        )
        yield from metric(
            "tidelog_partition_offline",
            "1 for each partition whose disk failed.",
            ((f'topic="{topic}",partition="{index}"', 1) for topic, index in offline),
        )
        yield from self._damage()
        yield from metric(
            "tidelog_request_memory_bytes",
            "Bytes that incoming requests hold.",
            self.memory.reserved_bytes,
        )
        yield from metric(
            "tidelog_fetch_sessions", "Fetch sessions kept.", len(self.fetch_sessions)
        )
        yield from metric(
            "tidelog_refusing_writes",
            "1 while the disk is too full for writes.",
            int(self.replicas.space.clients.refusal is not None),
        )
        yield from self.cluster.lines()
        yield from self._cleaner()
        yield from self._groups()
        yield from self.transactions.lines()
        yield from self._audit()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield from metric(
            "process_cpu_seconds_total",
            "User and system CPU seconds.",
            round(usage.ru_utime + usage.ru_stime, 3),
        )

    def _audit(self) -> Iterator[str]:
        audit = self.audit
        for name, value, text in (
            ("events_total", audit.recorded, "Events that the audit log took."),
            ("events_dropped_total", audit.dropped, "Events that it had no room for."),
            ("failing", int(audit.fault is not None), "1 while it cannot be written."),
        ):
            yield from metric(f"tidelog_audit_{name}", text, value)

    def _damage(self) -> Iterator[str]:
        mending, scrubber = self.mending, self.mending.scrubber
        yield from metric(
            "tidelog_damaged_partitions",
            "Replicas here that are damaged on the disk and not whole again.",
            len(mending.damaged),
        )
        for name, value, text in (
            ("corruptions_found", mending.found, "Times that damage was found in a log."),
            ("corruptions_repaired", mending.repaired, "Damaged replicas that are whole again."),
            ("scrub_bytes", scrubber.checked_bytes, "Bytes of logs that the scrub has checked."),
            ("scrub_passes", scrubber.passes, "Times that the scrub has checked all logs."),
        ):
            yield from metric(f"tidelog_{name}_total", text, value)

    def _cleaner(self) -> Iterator[str]:
        cleaner = self.replicas.cleaner
        stats = cleaner.stats
        name = "tidelog_log_cleaner"
        yield from metric(f"{name}_cleans_total", "Cleans of compacted logs.", stats.cleans)
        yield from metric(f"{name}_failures_total", "Cleans that failed.", stats.failures)
        yield from metric(f"{name}_read_bytes_total", "Bytes cleaned.", stats.bytes_read)
        yield from metric(
            f"{name}_written_bytes_total", "Bytes left of what was cleaned.", stats.bytes_written
        )
        yield from metric(
            f"{name}_max_dirty_ratio",
            "The largest uncleaned share of a compacted log at the last look.",
            round(stats.max_dirty_ratio, 4),
        )
        yield from metric(
            f"{name}_uncleanable_partitions",
            "Compacted logs left alone because of damage.",
            cleaner.uncleanable,
        )
        yield from metric(
            f"{name}_last_run_timestamp_seconds",
            "When the cleaner last found nothing left to clean.",
            stats.last_run_ms / 1000,
        )

    def _groups(self) -> Iterator[str]:
        groups = self.groups
        census, stats, runs = groups.census(), groups.group_stats, groups.stats
        name = "tidelog_group"
        yield from metric(
            "tidelog_groups",
            "Groups that this broker coordinates.",
            (
                (f'type="{kind}",state="{state}"', count)
                for (kind, state), count in sorted(census.groups.items())
            ),
        )
        yield from metric(
            f"{name}_members",
            "Members of these groups.",
            by("type", census.members),
        )
        yield from metric(f"{name}_offsets", "Committed offsets that are kept.", census.offsets)
        yield from metric(
            f"{name}_rebalances_total",
            "Rebalances that began.",
            by("type", stats.rebalances),
        )
        for key, value, text in (
            ("commits", stats.commits, "Offsets committed, by partition."),
            ("expired_offsets", stats.expired_offsets, "Offsets that were not used for too long."),
            ("timeouts", runs.timeouts, "Changes that did not become durable in time."),
            ("loads", runs.loads, "Partitions of the offsets topic that were loaded."),
            ("load_seconds", round(runs.load_seconds, 6), "Seconds that loading them took."),
        ):
            yield from metric(f"{name}_{key}_total", text, value)
        yield from metric(
            f"{name}_load_max_seconds",
            "The longest load of one partition.",
            round(runs.load_seconds_max, 6),
        )

    def _logs(self, value_of: Callable[[Log], float]) -> Iterator[tuple[str, float]]:
        for partition in self.replicas:
            topic, index = partition.topic_partition
            yield f'topic="{topic}",partition="{index}"', value_of(partition.log)
