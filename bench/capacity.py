"""What a cluster of a given size needs, by the fitted curves and some rows of the bench.

The model is a sum: so many requests at what one costs, so many bytes at what one costs, so many
replicas at what one costs while nothing happens. What a request costs in the broker's own code, and
how that grows with its bytes, is fitted (`bench.growth`); what the operating system adds is the
difference to a row of the bench that counts everything (small requests, 1,000 connections).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_LATEST = Path(__file__).with_name("results") / "latest.json"
_RECORD_BYTES = 1_000
# Rows of the bench that `bench.growth` takes as well; the model is held against the last one.
ROWS = ("requests-produce-1000", "limit-1-mb", "limit-64-kib")
_HEARTBEATS_PER_S = 1 / 3
_COMMITS_PER_S = 1 / 5
# A follower's request that finds nothing waits so long at most.
_FETCH_WAIT_S = 0.5
# Two requests of a follower to one leader are so far apart at least: the way there and back.
_FETCH_PAUSE_S = 0.005


class Line(Protocol):
    """A curve with a line through it."""

    def fit(self) -> tuple[float, float]: ...


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a cluster."""

    brokers: int
    partitions: int
    messages_per_s: float
    replicas: int = 3
    records_in_batch: int = 16
    readers: int = 1
    members: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of a broker's loop."""

    request: float
    system: float
    produce_byte: float
    fetch: float
    fetch_byte: float
    heartbeat: float
    commit: float
    idle_replica_per_s: float
    partition_mb: float

    def produce(self, size_bytes: int) -> float:
        return self.request + self.system + self.produce_byte * size_bytes

    def serve_fetch(self, size_bytes: float) -> float:
        return self.fetch + self.system + self.fetch_byte * size_bytes


Rounds = list[Mapping[str, Any]]


def costs(curves: Mapping[str, Line], rows: Mapping[str, Rounds]) -> Costs:
    kept = {row["key"]: row["rounds"] for row in json.loads(_LATEST.read_text())["rows"]}
    request, produce_byte = curves["bytes-produce"].fit()
    fetch, fetch_byte = curves["bytes-fetch"].fit()
    small = curves["connections-produce"].fit()
    own = small[0] + small[1] * 1_000
    whole = 1e6 / _median(rows["requests-produce-1000"], _requests_per_cpu_s)
    one_mb = _median(rows["limit-1-mb"], _cpu_us_per_byte)
    sent = _median(kept["consume-1k"]["tidelog"], _cpu_us_per_byte)
    idle = kept["idle-replicas"]["tidelog"][0]["idle_percent"] / 100 * 1e6 / 3_000
    return Costs(
        request=request,
        system=max(0.0, whole - own),
        # Receiving is not in the curve, and is in the row of the bench.
        produce_byte=max(produce_byte, one_mb),
        fetch=fetch,
        fetch_byte=max(fetch_byte, sent),
        heartbeat=curves["groups-heartbeat"].fit()[0],
        commit=curves["groups-commit"].fit()[0],
        idle_replica_per_s=idle,
        partition_mb=curves["partitions-memory"].fit()[1],
    )


def _requests_per_cpu_s(result: Mapping[str, Any]) -> float:
    return float(result["requests"] / (result["cpu_user_s"] + result["cpu_system_s"]))


def _cpu_us_per_byte(result: Mapping[str, Any]) -> float:
    return float((result["cpu_user_s"] + result["cpu_system_s"]) * 1e6 / result["bytes"])


def _median(rounds: Rounds, figure: Any) -> float:
    return statistics.median(figure(each) for each in rounds)


def needs(load: Load, cost: Costs) -> list[tuple[str, float]]:
    """Shares of one core that each kind of work takes of one broker, the largest brokers apart."""
    messages = load.messages_per_s / load.brokers
    batch_bytes = load.records_in_batch * _RECORD_BYTES
    batches = messages / load.records_in_batch
    copies = load.replicas - 1
    # Each broker follows as many others as it shares partitions with. A request of a follower takes
    # what has come since the one before: at most as many as there are batches.
    lines = min(load.brokers - 1, load.partitions * load.replicas / load.brokers)
    fetches = max(min(batches * copies, lines / _FETCH_PAUSE_S), lines / _FETCH_WAIT_S)
    fetched_bytes = batches * copies * batch_bytes / fetches if fetches else 0.0
    replicas = load.partitions * load.replicas / load.brokers
    members = load.members / load.brokers
    return [
        ("produce requests", batches * cost.produce(batch_bytes)),
        ("serving followers", fetches * cost.serve_fetch(fetched_bytes)),
        ("following", fetches * (cost.fetch + cost.system)
         + batches * copies * cost.produce(batch_bytes)),
        ("serving consumers", load.readers * batches * cost.serve_fetch(batch_bytes)),
        ("heartbeats and commits", members * (_HEARTBEATS_PER_S * (cost.heartbeat + cost.system)
                                              + _COMMITS_PER_S * (cost.commit + cost.system))),
        ("idle replicas", replicas * cost.idle_replica_per_s),
    ]  # fmt: skip


def tables(curves: Mapping[str, Line], rows: Mapping[str, Rounds]) -> str:
    """The model in numbers, checked, and applied to a large cluster."""
    cost = costs(curves, rows)
    measured = _median(rows["limit-64-kib"], _cpu_us_per_byte) * 1e3
    said = cost.produce(65_536) / 65_536 * 1e3
    load = Load(350, 140_000, 4_400_000, members=10_000)
    parts = needs(load, cost)
    total = sum(each for _, each in parts) / 1e6
    replicas = load.partitions * load.replicas / load.brokers
    lines = [
        "| what | cost |",
        "|---|---:|",
        f"| a produce, in the broker | {_line(cost.request, cost.produce_byte)} |",
        f"| a fetch, in the broker | {_line(cost.fetch, cost.fetch_byte)} |",
        f"| the operating system, for each request | {cost.system:.1f} µs |",
        f"| a heartbeat, a commit | {cost.heartbeat:.1f} µs, {cost.commit:.1f} µs |",
        f"| a replica that nobody uses | {cost.idle_replica_per_s:.1f} µs in each second |",
        f"| a partition | {cost.partition_mb * 1e3:.1f} KB of memory |",
        "",
        "Held against a row of the bench that it was not made of, prebuilt batches of 64 KiB, the",
        f"model says {said:.2f} CPU seconds per GB; measured were {measured:.2f}.",
        "",
        f"Applied to {load.brokers} brokers, 8,000 topics, {load.partitions:,} partitions of three",
        f"replicas and {load.messages_per_s / 1e6:.1f} M messages/s of 1 KB, in batches of",
        f"{load.records_in_batch}, read once, with {load.members:,} members of groups: each broker",
        f"has {load.messages_per_s / load.brokers:,.0f} messages/s and {replicas:,.0f} replicas,",
        "and uses of one core",
        "",
        "| work | share |",
        "|---|---:|",
        *(f"| {name} | {share / 1e4:.1f} % |" for name, share in parts),
        f"| **all** | **{total:.0%}** |",
    ]
    return "\n".join(lines)


def _line(fixed_us: float, byte_us: float) -> str:
    return f"{fixed_us:.1f} µs, and {byte_us * 1e3:.2f} s/GB"
