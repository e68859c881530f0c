"""What /metrics, /healthz and /readyz say."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

from tidelog.server.context import Services
from tidelog.server.http import Page
from tidelog.server.metrics import counter, gauge, labelled_gauge


class StatusPages:
    """The pages of one broker."""

    def __init__(self, services: Services, is_ready: Callable[[], bool]) -> None:
        self._services = services
        self._is_ready = is_ready
        self.routes: dict[str, Page] = {
            "/metrics": self.metrics,
            "/healthz": self.healthz,
            "/readyz": self.readyz,
        }

    def healthz(self) -> tuple[int, str]:
        return 200, "ok\n"

    def readyz(self) -> tuple[int, str]:
        if not self._is_ready():
            return 503, "stopping\n"
        refusing = self._services.replicas.refusing_writes
        if refusing is not None:
            return 503, f"refusing writes: {refusing.message}\n"
        return 200, "ready\n"

    def metrics(self) -> tuple[int, str]:
        return 200, "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        services = self._services
        yield from services.metrics.lines()
        yield from labelled_gauge(
            "tidelog_log_size_bytes", "Bytes of a partition's log.", self._logs("size_bytes")
        )
        yield from labelled_gauge(
            "tidelog_log_start_offset", "First offset of a log.", self._logs("log_start_offset")
        )
        yield from labelled_gauge(
            "tidelog_log_end_offset", "Next offset of a log.", self._logs("log_end_offset")
        )
        yield from gauge("tidelog_partitions", "Partitions held.", len(services.replicas))
        yield from gauge(
            "tidelog_request_memory_bytes",
            "Bytes that incoming requests hold.",
            services.memory.reserved_bytes,
        )
        yield from gauge(
            "tidelog_fetch_sessions", "Fetch sessions kept.", len(services.fetch_sessions)
        )
        yield from gauge(
            "tidelog_refusing_writes",
            "1 while the disk is too full for writes.",
            int(services.replicas.refusing_writes is not None),
        )
        yield from self._cleaner()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield from gauge(
            "process_cpu_seconds_total",
            "User and system CPU seconds.",
            round(usage.ru_utime + usage.ru_stime, 3),
        )

    def _cleaner(self) -> Iterator[str]:
        cleaner = self._services.replicas.cleaner
        stats = cleaner.stats
        name = "tidelog_log_cleaner"
        yield from counter(f"{name}_cleans_total", "Cleans of compacted logs.", stats.cleans)
        yield from counter(f"{name}_failures_total", "Cleans that failed.", stats.failures)
        yield from counter(f"{name}_read_bytes_total", "Bytes cleaned.", stats.bytes_read)
        yield from counter(
            f"{name}_written_bytes_total", "Bytes left of what was cleaned.", stats.bytes_written
        )
        yield from gauge(
            f"{name}_max_dirty_ratio",
            "The largest uncleaned share of a compacted log at the last look.",
            round(stats.max_dirty_ratio, 4),
        )
        yield from gauge(
            f"{name}_uncleanable_partitions",
            "Compacted logs left alone because of damage.",
            cleaner.uncleanable,
        )
        yield from gauge(
            f"{name}_last_run_timestamp_seconds",
            "When the cleaner last found nothing left to clean.",
            stats.last_run_ms / 1000,
        )

    def _logs(self, attribute: str) -> Iterator[tuple[str, float]]:
        for partition in self._services.replicas:
            topic, index = partition.topic_partition
            value = getattr(partition.log, attribute)
            yield f'topic="{topic}",partition="{index}"', value
