"""Counters of one broker, written out as Prometheus text by hand.

Two brokers in one process each have their own; an increment is an attribute and an addition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tidelog._kernels import COMPILED
from tidelog.version import VERSION

LATENCY_BOUNDS_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip


class Histogram:
    """Cumulative buckets of seconds."""

    __slots__ = ("count", "counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_SECONDS) + 1)
        self.count = 0
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS_SECONDS, seconds)] += 1
        self.count += 1
        self.sum += seconds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        prefix = f"{labels}," if labels else ""
        total = 0
        for bound, bucket in zip(LATENCY_BOUNDS_SECONDS, self.counts, strict=False):
            total += bucket
            yield f'{name}_bucket{{{prefix}le="{bound:g}"}} {total}'
        yield f'{name}_bucket{{{prefix}le="+Inf"}} {self.count}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.sum:.6f}"
        yield f"{name}_count{braces} {self.count}"


class ApiMetrics:
    """What one API has been asked, and how long its answers took."""

    __slots__ = ("latency", "name", "request_bytes", "requests", "response_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.latency = Histogram()


class BrokerMetrics:
    """All counters that handlers and housekeeping feed."""

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}
        self.connections_opened = 0
        self.connections_refused = 0
        self.authentications_failed = 0
        self.frames_dropped = 0
        self.protocol_errors = 0
        self.produced_records = 0
        self.produced_bytes = 0
        self.fetched_bytes = 0
        self.loop_stall = Histogram()
        self.loop_stall_max_seconds = 0.0
        self.loop_busy_max_seconds = 0.0
        self.loop_cpu_seconds = 0.0
        # Those who count for themselves: each gives its lines.
        self.more: list[Callable[[], Iterator[str]]] = []

    def api(self, key: int, name: str) -> ApiMetrics:
        found = self.apis.get(key)
        if found is None:
            found = self.apis[key] = ApiMetrics(name)
        return found

    def observe_heartbeat(self, late_seconds: float, cpu_seconds: float) -> None:
        """`cpu_seconds` is what the loop used since the last one: no callback used more."""
        self.loop_stall.observe(late_seconds)
        self.loop_stall_max_seconds = max(self.loop_stall_max_seconds, late_seconds)
        self.loop_busy_max_seconds = max(self.loop_busy_max_seconds, cpu_seconds)
        self.loop_cpu_seconds += cpu_seconds

    def lines(self) -> Iterator[str]:
        """The counters as Prometheus text, a line each."""
        build = f'version="{VERSION}",kernels="{"compiled" if COMPILED else "python"}"'
        yield from metric("tidelog_build_info", "This broker's version.", [(build, 1)])
        for name, text in (
            ("requests", "Requests started, per API."),
            ("request_bytes", "Bytes of requests, per API."),
            ("response_bytes", "Bytes of answers, per API."),
        ):
            counts = {api.name: getattr(api, name) for api in self.apis.values()}
            yield from metric(f"tidelog_{name}_total", text, by("api", counts))
        name = "tidelog_request_seconds"
        yield from _family(name, "histogram", "Seconds from whole request to answer, per API.")
        for api in self.apis.values():
            yield from api.latency.lines(name, f'api="{api.name}"')
        yield from self._totals()
        name = "tidelog_loop_stall_seconds"
        yield from _family(name, "histogram", "How late the event loop ran its heartbeat.")
        yield from self.loop_stall.lines(name, "")
        for lines in self.more:
            yield from lines()

    def _totals(self) -> Iterator[str]:
        for name, value, text in (
            ("connections_opened", self.connections_opened, "Connections accepted."),
            ("connections_refused", self.connections_refused, "Connections beyond a limit."),
            (
                "authentications_failed",
                self.authentications_failed,
                "Connections that could not prove who they are.",
            ),
            ("frames_dropped", self.frames_dropped, "Requests that arrived too slowly, dropped."),
            ("protocol_errors", self.protocol_errors, "Frames that closed their connection."),
            ("produced_records", self.produced_records, "Records appended by producers."),
            ("produced_bytes", self.produced_bytes, "Bytes of batches appended by producers."),
            ("fetched_bytes", self.fetched_bytes, "Bytes of batches handed to readers."),
        ):
            yield from metric(f"tidelog_{name}_total", text, value)
        yield from metric(
            "tidelog_loop_cpu_seconds_total",
            "CPU time of the event loop: near 1 for each second, one core is used up.",
            round(self.loop_cpu_seconds, 6),
        )
        yield from metric(
            "tidelog_loop_stall_max_seconds",
            "The longest stall of the event loop since start.",
            round(self.loop_stall_max_seconds, 6),
        )
        yield from metric(
            "tidelog_loop_busy_max_seconds",
            "The most CPU time that the event loop used between two heartbeats since start.",
            round(self.loop_busy_max_seconds, 6),
        )


def metric(name: str, text: str, values: float | Iterable[tuple[str, float]]) -> Iterator[str]:
    """One value, or one for each set of labels; a counter where the name says `_total`."""
    yield from _family(name, "counter" if name.endswith("_total") else "gauge", text)
    for labels, value in [("", values)] if isinstance(values, int | float) else values:
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"


def by(label: str, values: Mapping[Any, float]) -> Iterator[tuple[str, float]]:
    """The values of a metric by one label, in order."""
    for key in sorted(values):
        yield f'{label}="{key}"', values[key]


def _family(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
