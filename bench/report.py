"""The page of results: tables in Markdown from the JSON, the plot, and notes kept by hand."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import plot
from bench.figures import Floor, figures, floors
from bench.measure import Spread

NOTES = Path(__file__).with_name("notes.md")
PEERS = {
    "kafka": "Apache Kafka",
    "tidelog": "Tidelog",
    "bare": "bare C loop",
    "uvloop": "bare uvloop protocol",
    "connector": "Spark's connector on Tidelog",
    "constant": "a source that yields one batch again and again",
}

_NAMES = {
    "records_per_s": "records/s",
    "mb_per_s": "MB/s",
    "cpu_s_per_gb": "broker CPU s/GB",
    "requests_per_s": "requests/s",
    "requests_per_cpu_s": "requests per broker CPU s",
    "transactions_per_s": "transactions/s",
    "cpu_ms_per_transaction": "ms of broker CPU for each",
    "overhead_percent": "% less than without",
    "logins_per_s": "log-ins/s",
    "cpu_ms_per_login": "ms of broker CPU for each",
    "open_requests_per_cpu_s": "requests per broker CPU s without rules",
    "acl_percent": "% more CPU with rules",
    "producer_off_percent": "% off the producer's quota",
    "consumer_off_percent": "% off the consumer's quota",
    "alone_p50_ms": "p50 ms without them",
    "p50_beside": "times the p50 without them",
    "p50_ms": "p50 ms",
    "batch_p50_ms": "ms for a micro-batch (p50)",
    "arrival_p95_ms": "ms end to end (p95)",
    "p99_ms": "p99 ms",
    "alone_p99_ms": "p99 ms without the other reader",
    "p99_beside": "times the p99 without the other reader",
    "catch_up_mb_per_s": "MB/s of the other reader",
    "commits_p99_ms": "p99 ms of commits",
    "in_step_p99_ms": "p99 ms in step",
    "in_step_commits_p99_ms": "p99 ms of commits in step",
    "cpu_s_per_mrow": "CPU s per million rows (Spark and broker)",
    "elapsed_s": "s",
    "cpu_s": "CPU s",
    "loaded_s": "s from listening",
    "holding_cores": "cores to hold them",
    "client_cores": "cores of the client",
    "client_late_p99_ms": "ms the client was late (p99)",
    "resident_mb": "resident MB",
    "resident_mb_each": "resident MB for each broker",
    "idle_percent": "% of a core",
    "callback_ms": "ms of CPU in one callback at most",
}
_SHOWN_OF_GROUPS = (
    "elapsed_s",
    "cpu_s",
    "p50_ms",
    "p99_ms",
    "commits_p99_ms",
    "in_step_p99_ms",
    "in_step_commits_p99_ms",
    "holding_cores",
    "resident_mb",
    "client_cores",
    "client_late_p99_ms",
)
_SHOWN_OF_TRANSACTIONS = ("transactions_per_s", "cpu_ms_per_transaction", "p50_ms", "p99_ms")
# Which figures a kind of row shows, in order.
_SHOWN = {
    "transactions": _SHOWN_OF_TRANSACTIONS,
    "transactions-synced": _SHOWN_OF_TRANSACTIONS,
    "in-transactions": ("records_per_s", "cpu_s_per_gb", "overhead_percent"),
    "transactional-ids": ("elapsed_s", "loaded_s", "cpu_s", "resident_mb"),
    "throughput": ("records_per_s", "mb_per_s", "cpu_s_per_gb"),
    "tls": ("records_per_s", "mb_per_s", "cpu_s_per_gb"),
    "logins": ("logins_per_s", "cpu_ms_per_login"),
    "acls": ("requests_per_s", "requests_per_cpu_s", "open_requests_per_cpu_s", "acl_percent"),
    "quota": (
        "producer_off_percent",
        "consumer_off_percent",
        "p50_ms",
        "p99_ms",
        "alone_p50_ms",
        "p50_beside",
    ),
    "cluster-throughput": ("records_per_s", "mb_per_s", "cpu_s_per_gb"),
    "cluster-batches": ("records_per_s", "mb_per_s", "cpu_s_per_gb"),
    "cluster-loop": ("callback_ms", "resident_mb_each"),
    "brokers": ("mb_per_s", "cpu_s_per_gb", "p50_ms", "p99_ms", "resident_mb_each", "callback_ms"),
    "idle-replicas": ("idle_percent", "resident_mb_each", "elapsed_s", "callback_ms"),
    "limit": ("records_per_s", "mb_per_s", "cpu_s_per_gb"),
    "compressed": ("mb_per_s", "cpu_s_per_gb", "p50_ms", "p99_ms"),
    "latency": ("p50_ms", "p99_ms"),
    "cluster-latency": ("p50_ms", "p99_ms"),
    "requests": ("requests_per_s", "requests_per_cpu_s"),
    "start": ("elapsed_s", "cpu_s", "resident_mb"),
    "in-process": ("elapsed_s",),
    "memory": ("resident_mb",),
    "groups": _SHOWN_OF_GROUPS,
    "groups-commits": _SHOWN_OF_GROUPS,
    "catch-up": ("p50_ms", "p99_ms", "alone_p99_ms", "p99_beside", "catch_up_mb_per_s"),
    "offsets": ("elapsed_s", "loaded_s", "cpu_s", "resident_mb"),
    "spark-read": ("records_per_s", "mb_per_s", "cpu_s_per_mrow"),
    "spark-write": ("records_per_s", "mb_per_s", "cpu_s_per_mrow"),
    "spark-stream": ("batch_p50_ms", "arrival_p95_ms"),
}


# The kernel's own threads alone (writing back, above all) use about this much under load.
_QUIET_CORES = 0.3


def number(value: float) -> str:
    """Three or more significant digits, thousands set apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _cell(figure: Spread) -> str:
    if figure.rounds == 1:
        return number(figure.median)
    return f"{number(figure.median)} ({number(figure.low)}–{number(figure.high)})"


def _verdict(floor: Floor) -> str:
    return "met" if floor.met else f"**short by {floor.short_by:.0%}**"


def floor_table(results: Mapping[str, Any]) -> str:
    lines = [
        "| row | figure | Apache Kafka | Tidelog | floor | verdict |",
        "|---|---|---:|---:|---:|---|",
    ]
    for floor in floors(results):
        kafka = "–" if floor.kafka is None else number(floor.kafka)
        sign = "≥" if floor.at_least else "≤"
        cells = (
            floor.row,
            _NAMES.get(floor.what, floor.what),
            kafka,
            number(floor.tidelog),
            f"{sign} {number(floor.bound)}",
            _verdict(floor),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def detail_table(results: Mapping[str, Any]) -> str:
    lines = ["| row | peer | median (lowest–highest) | others, cores |", "|---|---|---|---:|"]
    for row in results["rows"]:
        for name, rounds in row["rounds"].items():
            found = figures(rounds)
            shown = (
                f"{_cell(found[each])} {_NAMES[each]}"
                for each in _SHOWN[row["kind"]]
                if each in found
            )
            others = f"{found['others_cores'].median:.1f}" if "others_cores" in found else "–"
            lines.append(f"| {row['title']} | {PEERS[name]} | {'; '.join(shown)} | {others} |")
    return "\n".join(lines)


def profiles(results: Mapping[str, Any]) -> str:
    """The functions that the broker spent its own time in, by row."""
    parts = []
    for title, shares in results["profiles"].items():
        lines = "\n".join(f"{share:6.1%}  {function}" for share, function in shares)
        parts.append(f"{title}:\n\n```\n{lines}\n```")
    return "\n\n".join(parts)


def table(results: Mapping[str, Any]) -> str:
    """Both tables, for a terminal."""
    return f"{floor_table(results)}\n\n{detail_table(results)}"


def warnings(results: Mapping[str, Any]) -> list[str]:
    """What a reader must know before believing a figure."""
    found = []
    if results["quick"]:
        found.append("This was a quick run, with small loads: rough figures, not for quoting.")
    rows = [(title, cores) for title, cores in _others_by_row(results) if cores > _QUIET_CORES]
    busy = [f"{title} ({cores:.1f})" for title, cores in rows]
    if busy:
        found.append(
            "The machine was not quiet during these rows, in which others used so many "
            f"of {results['machine']['cores']} cores beside brokers and clients: "
            f"{'; '.join(busy)}. Their wall-clock figures are rough, and processor time is higher "
            "than it would be alone."
        )
    return found


def _others_by_row(results: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """What others used during a row: the median of its rounds."""
    for row in results["rows"]:
        rounds = (each for some in row["rounds"].values() for each in some)
        others = [each["others_cores"] for each in rounds if "others_cores" in each]
        if others:
            yield row["title"], statistics.median(others)


def _other_times(results: Mapping[str, Any]) -> list[str]:
    """Which rows were taken at another time than the page says."""
    times: dict[str, list[str]] = {}
    for row in results["rows"]:
        taken = row.get("taken", results["taken"])
        if taken != results["taken"]:
            times.setdefault(taken, []).append(row["title"])
    return [f"Taken {taken} instead: {'; '.join(titles)}." for taken, titles in times.items()]


def page(results: Mapping[str, Any], image: str | None) -> str:
    versions = ", ".join(f"{PEERS[name]} {text}" for name, text in results["peers"].items())
    machine = "\n".join(f"- {name}: {text}" for name, text in results["machine"].items())
    short = [floor for floor in floors(results) if not floor.met]
    count = len(list(floors(results)))
    parts = [
        "# Benchmarks",
        "<!-- Generated by `python -m bench`; the notes at the end are kept in bench/notes.md. -->",
        f"Taken {results['taken']}: {versions}. {results['rounds']} rounds, the brokers in turn "
        f"within each round, {results['seconds'] / 60:.0f} minutes in all. "
        f"{count - len(short)} of {count} floors are met.",
        *warnings(results),
        *_other_times(results),
        "## Floors",
        floor_table(results),
    ]
    if image:
        parts.append(f"![Rates and broker processor time, Tidelog beside Apache Kafka]({image})")
    parts += ["## All figures", detail_table(results)]
    if results["profiles"]:
        parts += ["## Where the time goes in what falls short", profiles(results)]
    if results["not_run"]:
        parts += ["## Not run", "\n".join(f"- {line}" for line in results["not_run"])]
    quiet = results["quiet"]
    parts += [
        "## The machine",
        machine,
        f"Before the run others used {quiet['others_cores']:.2f} cores (load average "
        f"{quiet['load_average']:.2f}); what they and the kernel's own threads used during each "
        "row stands in the last column of the table.",
        NOTES.read_text().strip(),
    ]
    return "\n\n".join(parts) + "\n"


def write(results: Mapping[str, Any], docs: Path) -> None:
    """Write the page and its plot into `docs`."""
    image = plot.draw(results, docs / "benchmarks.svg")
    (docs / "benchmarks.md").write_text(page(results, image))
