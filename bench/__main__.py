"""``python -m bench``: Tidelog and Apache Kafka side by side, into JSON, a page and a plot."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench import (
    catch_up,
    limit,
    many,
    profile,
    report,
    runner,
    securing,
    standalone,
    transactional_ids,
)
from bench.figures import floors
from bench.measure import machine
from bench.peers import bare_loop, bare_protocol, kafka
from bench.peers.clusters import KafkaCluster, TidelogCluster
from bench.peers.peer import Peer
from bench.peers.secured import secure
from bench.peers.tidelog import TidelogBroker
from bench.rows import ROWS, Row
from scripts.guardian import guard

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "latest.json"

# Both sides get the same; topics are made on first use for the start row.
_SETTINGS = {
    "auto.create.topics.enable": "true",
    # A deleted topic's pages are to be used again at once: memory that a virtual machine has not
    # touched before costs its first user several times what it costs the next.
    "log.segment.delete.delay.ms": "0",
}
# Kinds of rows whose brokers are started for them alone.
_STANDALONE = (
    "start", "in-process", "groups", "groups-commits", "offsets", "transactional-ids",
    "spark-read", "spark-write", "spark-stream", "brokers", "idle-replicas", "catch-up", "acls",
)  # fmt: skip


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    keys = ", ".join(row.key for row in ROWS)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small loads, one round")
    parser.add_argument("--rounds", type=int, help="rounds of each row (5; with --quick 1)")
    parser.add_argument("--rows", help=f"prefixes of the rows to run, the others kept: {keys}")
    parser.add_argument("--only", choices=("tidelog", "kafka"), help="measure one side alone")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of our broker"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--no-page", action="store_true", help="leave the page and plot alone")
    parser.add_argument("--page-only", action="store_true", help="page and plot from the last JSON")
    chosen = parser.parse_args(arguments)
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 5)
    return chosen


def chosen_rows(prefixes: str | None) -> list[Row]:
    if not prefixes:
        return list(ROWS)
    wanted = tuple(prefixes.split(","))
    rows = [row for row in ROWS if row.key.startswith(wanted)]
    if not rows:
        raise SystemExit(f"no row begins with {' or '.join(wanted)}")
    return rows


def peer_makers(
    only: str | None, ours: Sequence[str] = (), *, of_clusters: bool = False
) -> tuple[list[Callable[[], Peer]], list[str]]:
    """How to make each side, Kafka first, and what cannot be run here."""
    theirs_class = KafkaCluster if of_clusters else kafka.ApacheKafka
    ours_class = TidelogCluster if of_clusters else TidelogBroker
    settings = our_settings(ours)
    makers: list[Callable[[], Peer]] = []
    not_run = []
    if only != "tidelog":
        if kafka.available():
            makers.append(lambda: theirs_class(settings=_SETTINGS))
        else:
            not_run.append("Apache Kafka: needs java and mvn")
    if only != "kafka":
        makers.append(lambda: ours_class(settings=settings))
    return makers, not_run


def our_settings(given: Sequence[str]) -> dict[str, str]:
    return {**_SETTINGS, **dict(each.split("=", 1) for each in given)}


def run(options: argparse.Namespace) -> runner.Result:
    rows = chosen_rows(options.rows)
    makers, not_run = peer_makers(options.only, options.set)
    begin = time.monotonic()
    results: runner.Result = {
        "taken": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "quick": options.quick,
        "rounds": options.rounds,
        "machine": machine(),
        "quiet": runner.quietness(say),
        "peers": {peer.name: peer.version() for peer in (maker() for maker in makers)},
        "not_run": not_run,
        "rows": [],
        "profiles": {},
    }
    for row in rows:
        if row.kind in _STANDALONE:
            _unless_it_fails(row, results, partial(_run_standalone, row, makers, options))
    loads = [row for row in rows if row.kind not in _STANDALONE]
    alone = [row for row in loads if row.brokers == 1 and not is_secured(row)]
    if alone:
        _run_loads(alone, makers, options, results)
    secured = [row for row in loads if is_secured(row)]
    if secured:
        _run_loads(secured, [partial(_secured, maker) for maker in makers], options, results)
    clusters = [row for row in loads if row.brokers > 1]
    if clusters:
        cluster_makers, _ = peer_makers(options.only, options.set, of_clusters=True)
        _run_loads(clusters, cluster_makers, options, results)
    results["seconds"] = time.monotonic() - begin
    return results


def is_secured(row: Row) -> bool:
    """Whether a row's brokers have more than the open listener, or quotas."""
    return row.listener != "PLAINTEXT" or row.kind == "quota"


def _secured(maker: Callable[[], Peer]) -> Peer:
    return secure(maker())


def with_kept_rows(results: runner.Result, before: runner.Result) -> runner.Result:
    """What was run now, and every other row as it was taken before, in the table's order."""
    order = [row.key for row in ROWS]
    fresh = {row["key"]: {**row, "taken": results["taken"]} for row in results["rows"]}
    kept = {row["key"]: {"taken": before["taken"], **row} for row in before["rows"]}
    rows = {**kept, **fresh}
    titles = {row["title"] for row in fresh.values()}
    ranked = sorted(rows, key=lambda key: order.index(key) if key in order else len(order))
    profiles = {title: each for title, each in before["profiles"].items() if title not in titles}
    return {
        **results,
        "peers": {**before["peers"], **results["peers"]},
        "rows": [rows[key] for key in ranked],
        "profiles": {**profiles, **results["profiles"]},
    }


def _run_standalone(
    row: Row, makers: standalone.Makers, options: argparse.Namespace
) -> runner.Result | None:
    rounds, quick = options.rounds, options.quick
    if row.kind == "start":
        return standalone.run_start(row, makers, rounds, say)
    if row.kind in ("groups", "groups-commits"):
        return standalone.run_groups(row, makers, rounds, quick, say)
    if row.kind == "offsets":
        return standalone.run_offsets(row, makers, rounds, quick, say)
    if row.kind == "transactional-ids":
        return transactional_ids.run_ids(row, makers, rounds, quick, say)
    if row.kind in ("spark-read", "spark-write"):
        return standalone.run_spark(row, makers, rounds, quick, say)
    if row.kind == "spark-stream":
        return standalone.run_stream(row, makers, rounds, quick, say)
    if row.kind == "catch-up":
        return catch_up.run_catch_up(row, makers, rounds, quick, say)
    if row.kind == "acls":
        return securing.run_acls(row, makers, rounds, quick, say)
    if row.kind == "brokers":
        return many.run_brokers(row, makers, min(rounds, row.rounds_max), quick, say)
    if options.only == "kafka":
        return None
    ours = our_settings(options.set)
    if row.kind == "idle-replicas":
        return many.run_idle_replicas(row, quick, ours, say)
    return standalone.run_in_process(row, rounds, say)


def _unless_it_fails(
    row: Row, results: runner.Result, run_it: Callable[[], runner.Result | None]
) -> None:
    """One row that fails must not cost the others, and must not go unsaid."""
    say(row.title)
    try:
        done = run_it()
    except RuntimeError as error:
        say(f"failed: {error}")
        results["not_run"].append(f"{row.title}: failed, {str(error).splitlines()[-1]}")
    else:
        if done is not None:
            results["rows"].append(done)


def _run_loads(
    rows: Sequence[Row],
    makers: Sequence[Callable[[], Peer]],
    options: argparse.Namespace,
    results: runner.Result,
) -> None:
    """All loads against the same long-running brokers, as in production."""
    with contextlib.ExitStack() as running:
        peers = [running.enter_context(maker()) for maker in makers]
        bare = _start_bare_loops(rows, peers[0], running, results)
        for row in rows:
            if row.load.startswith("java.") and not kafka.available():
                results["not_run"].append(f"{row.title}: needs java and mvn")
                continue
            competing = [*peers, *(each for each in bare if each.name in row.bare)]
            rounds = min(options.rounds, row.rounds_max)
            run_it = partial(runner.run_row, row, competing, rounds, options.quick, say)
            _unless_it_fails(row, results, run_it)
        if peers[0].brokers > 1:
            results["rows"] += many.cluster_loop(peers)
        elif not peers[0].protocols:
            results["rows"].append(runner.run_memory(peers))
        _profile_what_is_short(rows, peers, options, results)


def _start_bare_loops(
    rows: Sequence[Row], broker: Peer, running: contextlib.ExitStack, results: runner.Result
) -> list[Peer]:
    """The limits that the rows are held against, with answers recorded from `broker`."""
    wanted = {name for row in rows for name in row.bare}
    if "bare" in wanted and not bare_loop.available():
        results["not_run"].append("The bare loop: needs a C compiler named cc")
        wanted.discard("bare")
    if not wanted:
        return []
    java = any(row.load.startswith("java.") for row in rows)
    answers = limit.recorded_answers(broker, java=java)
    started: list[Peer] = []
    for loop in (bare_loop.BareLoop, bare_protocol.BareProtocol):
        if loop.name in wanted:
            started.append(running.enter_context(loop(answers, broker.port)))
            results["peers"][loop.name] = started[-1].version()
    return started


def _profile_what_is_short(
    rows: Sequence[Row],
    peers: Sequence[Peer],
    options: argparse.Namespace,
    results: runner.Result,
) -> None:
    """A profile of our broker for each row that falls short, so that the page says why."""
    if profile.program() is None:
        results["not_run"].append("Profiles of what falls short: needs py-spy")
        return
    short = {floor.row for floor in floors(results) if not floor.met}
    ours = next((peer for peer in peers if peer.name == "tidelog"), None)
    for row in rows:
        if ours is not None and row.title in short:
            say(f"{row.title}: profile")
            results["profiles"][row.title] = runner.profile_row(row, ours, options.quick)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    guard()
    # Ended from outside, the brokers must end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.page_only:
        results = json.loads(options.output.read_text())
    else:
        results = run(options)
        if options.rows and options.output.exists():
            results = with_kept_rows(results, json.loads(options.output.read_text()))
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1) + "\n")
        say(f"{options.output} after {results['seconds']:.0f} s")
    if not options.no_page:
        report.write(results, ROOT / "docs")
    print(report.table(results))
    for line in results["not_run"]:
        print(f"NOT RUN {line}")


if __name__ == "__main__":
    main()
