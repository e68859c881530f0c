"""Rows that need brokers of their own: started for a round, measured, and stopped after it."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.group_wire import fetch_offsets_frame, fetched_offsets
from bench.loads.groups import committed_offsets, group_name
from bench.measure import cpu_seconds, resident_mb
from bench.peers.peer import Peer
from bench.rows import Row
from bench.runner import Result, Say, brief, measured_load, run_load
from bench.wire import (
    Connection,
    metadata_error,
    metadata_frame,
    produce_error,
    produce_frame,
    record_batch,
)

Makers = Sequence[Callable[[], Peer]]

# Besides its connections a process has files, threads' pipes, and what it was started with.
_OTHER_FILES = 600


def run_start(row: Row, make: Makers, rounds: int, say: Say) -> Result:
    """Start every peer on a new directory, one at a time, until it has acknowledged a record."""
    results: dict[str, list[Result]] = {}
    for number in range(-1, rounds):
        for maker in make:
            peer = maker()
            with contextlib.ExitStack() as cleanup:
                cleanup.push(peer.__exit__)
                peer.prepare()
                start = time.perf_counter()
                peer.launch()
                wait_for_first_record(peer.port)
                result: Result = {"elapsed_s": time.perf_counter() - start}
                result["cpu_s"] = cpu_seconds(peer.pid).total
                time.sleep(1)  # long enough that nothing of the start is still going on
                result["resident_mb"] = resident_mb(peer.pid)
            if number >= 0:
                results.setdefault(peer.name, []).append(result)
                say(f"  {row.key} round {number + 1} {peer.name}: {brief(result)}")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": results}


def run_spark(row: Row, make: Makers, rounds: int, quick: bool, say: Say) -> Result:
    """Our source on Tidelog beside the connector, on Apache Kafka and on Tidelog; one session.

    Reads also beside a source of one constant batch.
    """
    sizes = row.sized(quick)
    place = "subscribe" if sizes["direction"] == "read" else "topic"
    with contextlib.ExitStack() as running:
        sides: dict[str, dict[str, object]] = {}
        for peer in (running.enter_context(maker()) for maker in make):
            topic = running.enter_context(peer.topic(row.partitions))
            if sizes["direction"] == "read":
                fill = {"topic": topic, "pid": peer.pid, "partitions": row.partitions}
                amount = {each: sizes[each] for each in ("records", "record_bytes")}
                servers = {"bootstrap_servers": peer.bootstrap_servers}
                run_load("librdkafka.produce", fill | amount | servers)
            options = {"kafka.bootstrap.servers": peer.bootstrap_servers, place: topic}
            side = {"pid": peer.pid, "options": options}
            if peer.name == "tidelog":
                sides["tidelog"] = {**side, "format": "tidelog"}
                sides["connector"] = {**side, "format": "kafka"}
                if sizes["direction"] == "read":
                    sides["constant"] = {
                        **side,
                        "format": "bench_constant",
                        "options": _constant(sizes),
                    }
            else:
                sides["kafka"] = {**side, "format": "kafka"}
        results = run_load(row.load, sizes | {"sides": sides, "rounds": rounds})
    for name, some in results.items():
        for number, result in enumerate(some):
            say(f"  {row.key} round {number + 1} {name}: {brief(result)}")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": results}


def _constant(sizes: Mapping[str, Any]) -> dict[str, str]:
    return {"records": str(sizes["records"]), "recordBytes": str(sizes["record_bytes"])}


def run_stream(row: Row, make: Makers, rounds: int, quick: bool, say: Say) -> Result:
    """Live streams, one after the other, on brokers of their own."""

    def measure(peer: Peer) -> Result:
        with peer.start().topic(row.partitions) as topic:
            return measured_load(row, peer, topic, quick)

    return on_new_brokers(row, make, rounds, say, measure)


def wait_for_first_record(port: int, timeout_s: float = 60.0) -> None:
    """Ask every millisecond until a topic exists and one record in it is acknowledged."""
    topic, deadline = "first", time.monotonic() + timeout_s
    produce = produce_frame(topic, record_batch([b"first"]))
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = Connection(port)
            try:
                create_topic(connection, topic)
                while produce_error(connection.ask(produce), topic) != 0:
                    time.sleep(0.001)
                return
            finally:
                connection.close()
        time.sleep(0.001)
    raise TimeoutError(f"no record acknowledged within {timeout_s:.0f} s")


def create_topic(connection: Connection, topic: str) -> None:
    """Have the broker make a topic as it makes one on first use, and wait for its leader."""
    while metadata_error(connection.ask(metadata_frame(topic, create=True))) != 0:
        time.sleep(0.001)


def run_in_process(row: Row, rounds: int, say: Say) -> Result:
    results = []
    for number in range(rounds):
        results.append(run_load(row.load, {"times": 5}))
        say(f"  {row.key} round {number + 1} tidelog: {brief(results[-1])}")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": {"tidelog": results}}


def run_groups(row: Row, make: Makers, rounds: int, quick: bool, say: Say) -> Result:
    """Members by the thousand come at once to a broker that has seen none."""
    sizes = row.sized(quick)
    _allow_files(sizes["groups"] * sizes["members"] + _OTHER_FILES)

    def measure(peer: Peer) -> Result:
        with peer.start().topic(row.partitions) as topic:
            return measured_load(row, peer, topic, quick)

    return on_new_brokers(row, make, rounds, say, measure)


def run_offsets(row: Row, make: Makers, rounds: int, quick: bool, say: Say) -> Result:
    """Offsets are committed, the broker is killed, and the next one has them all."""
    sizes = row.sized(quick)

    def measure(peer: Peer) -> Result:
        topic = "offsets"
        connection = Connection(peer.start().port)
        create_topic(connection, topic)
        connection.close()
        run_load(row.load, sizes | {"port": peer.port, "pid": peer.pid, "topic": topic})
        peer.kill()
        start = time.perf_counter()
        peer.launch()
        result = wait_for_offsets(peer.port, topic, sizes["groups"], start)
        result["cpu_s"] = cpu_seconds(peer.pid).total
        result["resident_mb"] = resident_mb(peer.pid)
        check_offsets(peer.port, topic, sizes["groups"], sizes["partitions"])
        return result

    return on_new_brokers(row, make, rounds, say, measure)


def on_new_brokers(
    row: Row, make: Makers, rounds: int, say: Say, measure: Callable[[Peer], Result]
) -> Result:
    results: dict[str, list[Result]] = {}
    for number in range(min(rounds, row.rounds_max)):
        for maker in make:
            peer = maker()
            peer.settings |= row.settings
            with contextlib.ExitStack() as cleanup:
                cleanup.push(peer.__exit__)
                result = measure(peer)
            results.setdefault(peer.name, []).append(result)
            say(f"  {row.key} round {number + 1} {peer.name}: {brief(result)}")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": results}


def _allow_files(count: int) -> None:
    """Let us and the brokers, which inherit it, open so many files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count:
        raise RuntimeError(f"needs {count} open files, and the limit is {most} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def wait_for_offsets(port: int, topic: str, groups: int, start: float) -> Result:
    """Ask for one offset of every group until none of them is told to wait."""
    connection = connected(port)
    listening = time.perf_counter()
    waiting, is_loading = list(range(groups)), True
    deadline = time.monotonic() + 60
    while waiting and time.monotonic() < deadline:
        # One group stands for the rest until it is there, so that asking does not delay loading.
        asked = waiting[:1] if is_loading else waiting
        late = [number for number, (error, _) in _fetched(connection, topic, asked, [0]) if error]
        is_loading = bool(late)
        waiting = late + waiting[len(asked) :]
        if is_loading:
            time.sleep(0.001)
    done = time.perf_counter()
    connection.close()
    if waiting:
        raise RuntimeError(f"the offsets of {len(waiting)} groups are not there after a minute")
    return {"elapsed_s": done - start, "loaded_s": done - listening}


def check_offsets(port: int, topic: str, groups: int, partitions: int) -> None:
    """Every group has what was committed for it, or a RuntimeError names the first that has not."""
    every = range(partitions)
    with contextlib.closing(Connection(port)) as connection:
        for number, (error, offsets) in _fetched(connection, topic, range(groups), every):
            if error or offsets != committed_offsets(number, every):
                raise RuntimeError(f"{group_name(number)}: error {error}, offsets {offsets}")


def _fetched(
    connection: Connection, topic: str, groups: Sequence[int], partitions: Sequence[int]
) -> Iterator[tuple[int, tuple[int, dict[int, int]]]]:
    """The offsets of groups, a hundred requests in flight."""
    for first in range(0, len(groups), 100):
        some = groups[first : first + 100]
        frames = (fetch_offsets_frame(group_name(each), topic, partitions) for each in some)
        connection.socket.sendall(b"".join(frames))
        for number in some:
            yield number, fetched_offsets(connection.answer())


def connected(port: int, timeout_s: float = 60.0) -> Connection:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            return Connection(port)
        time.sleep(0.001)
    raise TimeoutError(f"nobody listens after {timeout_s:.0f} s")
