"""Runs rows in interleaved rounds and keeps every single result."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.measure import cpu_busy_seconds, cpu_seconds, load_average, resident_mb
from bench.page_cache import full_page_cache
from bench.peers.peer import Peer
from bench.peers.secured import SASL, TLS, authority_file, check_cipher
from bench.peers.tidelog import ROOT, environment
from bench.profile import profiled
from bench.rows import Row
from bench.topics import log_end

Result = dict[str, Any]
# Modules of loads that take a port.
_OVER_SOCKETS = ("raw.", "groups.", "logins.", "quotas.")
Say = Callable[[str], None]


def run_load(name: str, arguments: Mapping[str, Any]) -> Result:
    """Run one load in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.loads", name, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment(),
    )
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr.strip()[-2000:]}")
    result: Result = json.loads(done.stdout)
    return result


def measured_load(row: Row, peer: Peer, topic: str, quick: bool) -> Result:
    """One round against one peer, with what everybody else on the machine did meanwhile."""
    arguments = row.sized(quick) | {"pid": peer.pid, "topic": topic}
    if row.load.startswith(_OVER_SOCKETS):
        arguments["port"] = peer.port_of(row.listener)
    else:
        arguments["bootstrap_servers"] = f"127.0.0.1:{peer.port_of(row.listener)}"
    if row.listener == SASL:
        arguments["open_port"] = peer.port
    if row.listener == TLS:
        check_cipher(peer.port_of(TLS))
        arguments["client"] = {"security.protocol": "ssl", "ssl.ca.location": authority_file()}
    if row.brokers > 1 and not quick:
        full_page_cache().top_up()
    with others_cores([peer]) as others:
        result = run_load(row.load, arguments)
    result |= others
    if peer.stores and "stored" in result:
        held = log_end(peer.bootstrap_servers, topic, row.partitions)
        if held != result["stored"]:
            raise RuntimeError(f"{row.key}: {result['stored']} acknowledged, {held} held")
    return result


@contextlib.contextmanager
def others_cores(peers: Sequence[Peer]) -> Iterator[Result]:
    """What everybody but these peers and their loads uses meanwhile, in cores."""
    found: Result = {}
    busy, ours, start = cpu_busy_seconds(), _own_cpu(peers), time.monotonic()
    yield found
    passed = time.monotonic() - start
    others = (cpu_busy_seconds() - busy) - (_own_cpu(peers) - ours)
    found["others_cores"] = max(0.0, others / passed)


def _own_cpu(peers: Sequence[Peer]) -> float:
    """Processor time of the peers, of all loads that ended, and of ourselves."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    used = sum(cpu_seconds(peer.pid).total for peer in peers)
    return used + sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_row(row: Row, peers: Sequence[Peer], rounds: int, quick: bool, say: Say) -> Result:
    """`rounds` rounds, the peers in turn within each, after one small round that is not counted."""
    results: dict[str, list[Result]] = {peer.name: [] for peer in peers}
    with contextlib.ExitStack() as topics:
        filled = {peer.name: topics.enter_context(_topic(row, peer, quick)) for peer in peers}
        for number in range(-1, rounds):
            for peer in peers:
                if row.filled:
                    result = measured_load(row, peer, filled[peer.name], quick or number < 0)
                else:
                    with peer.topic(row.partitions) as topic:
                        result = measured_load(row, peer, topic, quick or number < 0)
                if number >= 0:
                    results[peer.name].append(result)
                    say(f"  {row.key} round {number + 1} {peer.name}: {brief(result)}")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": results}


def profile_row(row: Row, peer: Peer, quick: bool) -> list[tuple[float, str]]:
    """One more round, not counted, with py-spy beside the broker."""
    with _topic(row, peer, quick) as filled, contextlib.ExitStack() as topics:
        topic = filled if row.filled else topics.enter_context(peer.topic(row.partitions))
        with profiled(peer.pid) as shares:
            measured_load(row, peer, topic, quick)
    return shares


@contextlib.contextmanager
def _topic(row: Row, peer: Peer, quick: bool) -> Any:
    """The filled topic of a consume row; nothing for other rows."""
    if not row.filled:
        yield ""
        return
    with peer.topic(row.partitions) as topic:
        arguments = row.sized(quick) | {"bootstrap_servers": peer.bootstrap_servers}
        run_load("librdkafka.produce", arguments | {"pid": peer.pid, "topic": topic})
        yield topic


def _rate_and_cpu(result: Result, name: str, unit: str) -> list[str]:
    count, used_s = result[name], result["cpu_user_s"] + result["cpu_system_s"]
    return [
        f"{count / result['elapsed_s']:,.0f} {unit}/s",
        f"{used_s / count * 1e3:.3f} ms of CPU each",
    ]


def brief(result: Result) -> str:
    """One round in a few words, for whoever watches."""
    elapsed_s, parts = result["elapsed_s"], [f"{result['elapsed_s']:.3f} s"]
    if "records" in result:
        parts.append(f"{result['records'] / elapsed_s:,.0f} records/s")
    elif "transactions" in result:
        parts += _rate_and_cpu(result, "transactions", "transactions")
    elif "requests" in result:
        parts.append(f"{result['requests'] / elapsed_s:,.0f} requests/s")
    elif "logins" in result:
        parts += _rate_and_cpu(result, "logins", "log-ins")
    if "acl_percent" in result:
        parts.append(f"{result['acl_percent']:.1f} % more CPU with rules")
    if "producer_of_quota" in result:
        shares = result["producer_of_quota"], result["consumer_of_quota"]
        parts.append("{:.1%} and {:.1%} of the quotas".format(*shares))
    if "p50_ms" in result:
        parts.append(f"p50 {result['p50_ms']:.3f} ms p99 {result['p99_ms']:.3f} ms")
    if "commits_p99_ms" in result:
        parts.append(f"commits p99 {result['commits_p99_ms']:.3f} ms")
    if "in_step_p99_ms" in result:
        parts.append(f"in step p99 {result['in_step_p99_ms']:.3f} ms")
    if "in_step_commits_p99_ms" in result:
        parts.append(f"commits in step p99 {result['in_step_commits_p99_ms']:.3f} ms")
    if "batch_p50_ms" in result:
        batch, arrival = result["batch_p50_ms"], result["arrival_p95_ms"]
        parts.append(f"micro-batch p50 {batch:.0f} ms, end to end p95 {arrival:.0f} ms")
    if "bytes" in result:
        cpu = (result["cpu_user_s"] + result["cpu_system_s"]) / result["bytes"] * 1e9
        parts.append(f"{cpu:.2f} CPU s/GB")
    if "cpu_s" in result:
        parts.append(f"{result['cpu_s']:.2f} CPU s")
    if "loaded_s" in result:
        parts.append(f"{result['loaded_s']:.3f} s after listening")
    if "client_cores" in result:
        own = f"client {result['client_cores']:.2f} cores"
        parts.append(f"{own}, late by {result['client_late_p99_ms']:.1f} ms (p99)")
    if "resident_mb_each" in result:
        parts.append(f"{result['resident_mb_each']:.0f} MB each")
    if "resident_mb" in result:
        parts.append(f"{result['resident_mb']:.0f} MB")
    return ", ".join(parts)


def run_memory(peers: Sequence[Peer]) -> Result:
    """Resident memory of the peers after everything that was asked of them."""
    results = {
        peer.name: [{"elapsed_s": 0.0, "resident_mb": resident_mb(peer.pid)}] for peer in peers
    }
    title = "Resident memory after all loads"
    return {"key": "memory", "title": title, "kind": "memory", "rounds": results}


def quietness(say: Say) -> Result:
    """What others do while nothing of ours runs: the reader must know."""
    busy, start = cpu_busy_seconds(), time.monotonic()
    time.sleep(2)
    others = (cpu_busy_seconds() - busy) / (time.monotonic() - start)
    say(f"others use {others:.2f} cores, load average {load_average():.2f}")
    return {"others_cores": others, "load_average": load_average()}
