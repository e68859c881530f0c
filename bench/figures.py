"""From rounds to figures: medians per peer, and whether each floor is met or by how much not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.measure import Spread, spread

Result = Mapping[str, Any]


def _cpu(result: Result) -> float:
    return float(result["cpu_user_s"] + result["cpu_system_s"])


# Every figure that a round can give, by name; a KeyError means that this round does not give it.
FIGURES: dict[str, Callable[[Result], float]] = {
    "records_per_s": lambda result: result["records"] / result["elapsed_s"],
    "mb_per_s": lambda result: result["bytes"] / result["elapsed_s"] / 1e6,
    "cpu_s_per_gb": lambda result: _cpu(result) / result["bytes"] * 1e9,
    "user_s_per_gb": lambda result: result["cpu_user_s"] / result["bytes"] * 1e9,
    "system_s_per_gb": lambda result: result["cpu_system_s"] / result["bytes"] * 1e9,
    "requests_per_s": lambda result: result["requests"] / result["elapsed_s"],
    "requests_per_cpu_s": lambda result: result["requests"] / max(_cpu(result), 0.01),
    "records_per_cpu_s": lambda result: result["records"] / max(_cpu(result), 0.01),
    "transactions_per_s": lambda result: result["transactions"] / result["elapsed_s"],
    "cpu_ms_per_transaction": lambda result: _cpu(result) / result["transactions"] * 1e3,
    "overhead_percent": lambda result: result["overhead_percent"],
    "p50_ms": lambda result: result["p50_ms"],
    "batch_p50_ms": lambda result: result["batch_p50_ms"],
    "arrival_p95_ms": lambda result: result["arrival_p95_ms"],
    "p99_ms": lambda result: result["p99_ms"],
    "alone_p99_ms": lambda result: result["alone_p99_ms"],
    "p99_beside": lambda result: result["p99_ms"] / result["alone_p99_ms"],
    "catch_up_mb_per_s": lambda result: result["catch_up_mb_per_s"],
    "commits_p99_ms": lambda result: result["commits_p99_ms"],
    "in_step_p99_ms": lambda result: result["in_step_p99_ms"],
    "in_step_commits_p99_ms": lambda result: result["in_step_commits_p99_ms"],
    "cpu_s_per_mrow": lambda result: (
        (_cpu(result) + result["spark_cpu_s"]) / result["records"] * 1e6
    ),
    "elapsed_s": lambda result: result["elapsed_s"],
    "cpu_s": lambda result: result["cpu_s"],
    "loaded_s": lambda result: result["loaded_s"],
    "holding_cores": lambda result: result["holding_cores"],
    "client_cores": lambda result: result["client_cores"],
    "client_late_p99_ms": lambda result: result["client_late_p99_ms"],
    "resident_mb": lambda result: result["resident_mb"],
    "resident_mb_each": lambda result: result["resident_mb_each"],
    "idle_percent": lambda result: result["idle_percent"],
    "callback_ms": lambda result: result["callback_ms"],
    "logins_per_s": lambda result: result["logins"] / result["elapsed_s"],
    "cpu_ms_per_login": lambda result: _cpu(result) / result["logins"] * 1e3,
    "open_requests_per_cpu_s": lambda result: result["open_requests_per_cpu_s"],
    "acl_percent": lambda result: result["acl_percent"],
    "producer_off_percent": lambda result: abs(result["producer_of_quota"] - 1) * 100,
    "consumer_off_percent": lambda result: abs(result["consumer_of_quota"] - 1) * 100,
    "alone_p50_ms": lambda result: result["alone_p50_ms"],
    "p50_beside": lambda result: result["p50_ms"] / result["alone_p50_ms"],
    "others_cores": lambda result: result["others_cores"],
}


def figures(rounds: Sequence[Result]) -> dict[str, Spread]:
    """All figures of one peer in one row."""
    found = {}
    for name, compute in FIGURES.items():
        try:
            found[name] = spread([compute(result) for result in rounds])
        except KeyError:
            continue
    return found


@dataclass(frozen=True, slots=True)
class Floor:
    """One promise: what, the figures, and how far off (a negative `short_by` is in hand)."""

    row: str
    what: str
    kafka: float | None
    tidelog: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.tidelog >= self.bound if self.at_least else self.tidelog <= self.bound

    @property
    def short_by(self) -> float:
        """How much is missing, as a fraction of the bound."""
        distance = (self.bound - self.tidelog) / self.bound
        return distance if self.at_least else -distance


# kind of row -> (figure, share of Kafka's figure, at least or at most)
_AGAINST_KAFKA: dict[str, tuple[tuple[str, float, bool], ...]] = {
    "throughput": (("records_per_s", 0.9, True), ("cpu_s_per_gb", 1.0, False)),
    "tls": (("records_per_s", 1.0, True), ("cpu_s_per_gb", 1.0, False)),
    "logins": (("logins_per_s", 1.0, True), ("cpu_ms_per_login", 1.0, False)),
    "latency": (("p50_ms", 1.0, False), ("p99_ms", 1.0, False)),
    "requests": (("requests_per_cpu_s", 1.0, True),),
    "limit": (("records_per_s", 0.9, True), ("cpu_s_per_gb", 1.0, False)),
    "compressed": (("cpu_s_per_gb", 0.75, False), ("p99_ms", 1.0, False)),
    "cluster-throughput": (("records_per_s", 1.3, True), ("cpu_s_per_gb", 0.6, False)),
    "cluster-batches": (("records_per_s", 1.0, True), ("cpu_s_per_gb", 1.0, False)),
    "cluster-latency": (("p50_ms", 1.0, False), ("p99_ms", 1.0, False)),
    "transactions": (
        ("transactions_per_s", 1.0, True),
        ("cpu_ms_per_transaction", 1.0, False),
        ("p50_ms", 1.0, False),
        ("p99_ms", 1.0, False),
    ),
    "spark-read": (("records_per_s", 3.0, True),),
    "spark-write": (("records_per_s", 1.0, True), ("cpu_s_per_mrow", 1.0, False)),
}
# kind of row -> (figure, bound)
_ABSOLUTE: dict[str, tuple[tuple[str, float], ...]] = {
    "start": (("elapsed_s", 0.3), ("resident_mb", 60.0)),
    "in-process": (("elapsed_s", 0.1),),
    "memory": (("resident_mb", 120.0),),
    "groups": (("elapsed_s", 60.0), ("p99_ms", 60.0), ("resident_mb", 400.0)),
    "groups-commits": (("p99_ms", 300.0), ("commits_p99_ms", 300.0)),
    "offsets": (("loaded_s", 2.0),),
    "in-transactions": (("overhead_percent", 5.0),),
    "transactional-ids": (("loaded_s", 2.0),),
    "catch-up": (("p99_beside", 2.0),),
    "acls": (("acl_percent", 3.0),),
    "quota": (
        ("producer_off_percent", 5.0),
        ("consumer_off_percent", 5.0),
        ("p50_beside", 2.0),
    ),
    "brokers": (("callback_ms", 250.0),),
    "cluster-loop": (("callback_ms", 250.0),),
    "idle-replicas": (("idle_percent", 3.0), ("callback_ms", 250.0)),
    "spark-stream": (("batch_p50_ms", 150.0), ("arrival_p95_ms", 500.0)),
}
# key of row -> (figure, bound): a loop in C needs about 2.1 of it for three copies.
_ABSOLUTE_BY_KEY: dict[str, tuple[tuple[str, float], ...]] = {
    "cluster-produce-1k": (("cpu_s_per_gb", 3.4),),
}
# What a broker keeps of the bare loop's rate, by the size of the batches.
_SHARE_OF_LIMIT = {"limit-64-kib": 0.5, "limit-1-mb": 0.7}
# Where Kafka needs less than that for a small request, a broker in Python keeps so much of what
# the bare protocol in Python can do.
_SHARE_OF_PROTOCOL = 0.6


def floors(results: Result) -> Iterator[Floor]:
    """Every promise that the results can speak about."""
    for row in results["rows"]:
        sides = {name: figures(rounds) for name, rounds in row["rounds"].items()}
        ours, kafka = sides.get("tidelog"), sides.get("kafka")
        if not ours:
            continue
        absolute = _ABSOLUTE.get(row["kind"], ()) + _ABSOLUTE_BY_KEY.get(row["key"], ())
        for figure, bound in absolute:
            if figure not in ours:
                continue  # Kept of a run that did not look at it.
            theirs = kafka[figure].median if kafka and figure in kafka else None
            yield Floor(row["title"], figure, theirs, ours[figure].median, bound, False)
        for figure, share, at_least in _AGAINST_KAFKA.get(row["kind"], ()) if kafka else ():
            theirs = kafka[figure].median if kafka else 0.0
            mine, bound = ours[figure].median, theirs * share
            if row["kind"] == "requests" and "uvloop" in sides:
                bound = min(bound, sides["uvloop"][figure].median * _SHARE_OF_PROTOCOL)
            yield Floor(row["title"], figure, theirs, mine, bound, at_least)
        if row["kind"] == "latency" and kafka and "bare" in sides:
            yield from _above_the_client(row["title"], ours, kafka, sides["bare"])
        if row["kind"] == "limit" and "bare" in sides:
            bare, mine = sides["bare"]["mb_per_s"].median, ours["mb_per_s"].median
            what, bound = "share of the bare loop", _SHARE_OF_LIMIT[row["key"]]
            yield Floor(row["title"], what, None, mine / bare, bound, True)


def _above_the_client(
    title: str, ours: dict[str, Spread], kafka: dict[str, Spread], bare: dict[str, Spread]
) -> Iterator[Floor]:
    """The client's own cost aside, a single produce costs at most half of what it does at Kafka."""
    for figure in ("p50_ms", "p99_ms"):
        client = bare[figure].median
        theirs, mine = (max(side[figure].median - client, 0.0) for side in (kafka, ours))
        if theirs > 0:
            what = f"{figure[:3]} ms above the client's own"
            yield Floor(title, what, theirs, mine, theirs / 2, False)
