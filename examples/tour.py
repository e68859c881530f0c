"""A tour of one broker in one terminal: `python -m examples.tour`, or with --once to end by itself.

It starts `tidelog up` as a process of its own in a temporary directory, uses it through the command
line as a person would, kills it with SIGKILL while records are being sent, starts it again, and
counts. Exit code 0 means that the counts agree; nothing is left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from examples.processes import Program, free_ports, wait_until
from examples.terminal import (
    TIDELOG,
    heading,
    note,
    paint,
    run_quietly,
    show_command,
    show_output,
    tidelog,
)
from scripts.guardian import guard

TOPIC = "orders"
LOAD_TOPIC = "readings"
LOAD_RECORDS = 60_000
# The kill comes when this many of them are acknowledged, with the rest on its way.
KILL_AFTER = 10_000
WAIT_SECONDS_MAX = 30.0
FOR_EVER = 1e9
ORDERS = "alice:1 book\nbob:2 pens\nalice:3 maps\ncarol:1 lamp\n"
METRICS = "^tidelog_(produced_records|fetched_bytes|connections_opened|log_end)"


class TourBroker(Program):
    """`tidelog up` as a process, on the same port and directory at every start."""

    def __init__(self, directory: Path) -> None:
        port, metrics_port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.metrics_address = f"127.0.0.1:{metrics_port}"
        arguments = [
            "tidelog", "up", "--listen", self.address, "--metrics", self.metrics_address,
            "--data-dir", str(directory / "data"),
        ]  # fmt: skip
        super().__init__("broker", arguments, directory)

    def start(self) -> None:
        show_command(" ".join([*self.arguments, "&"]))
        before, said = time.monotonic(), len(self.said)
        super().start()
        self.wait_until(lambda: "tidelog is up" in self.said[said:], "the broker", WAIT_SECONDS_MAX)
        words = [line for line in self.said[said:].splitlines() if line.startswith("tidelog is up")]
        show_output("\n".join(words))
        note(f"  (after {time.monotonic() - before:.2f} s)")

    def kill(self) -> None:
        if self.running:
            show_command(f"kill -KILL {self.pid}")
        super().kill()


def show_topics() -> None:
    heading("Topics: create, list, describe")
    tidelog("topic", "create", TOPIC, "-p", "3", "--set", "retention.ms=86400000")
    tidelog("topic", "create", LOAD_TOPIC, "-p", "2")
    tidelog("topic", "list")
    tidelog("topic", "describe", TOPIC)


def show_records() -> bool:
    """Produce, consume, rewind; whether every reading was the same."""
    template = "%p:%o %k=%v [%h]\\n"
    heading("Produce: lines with keys, headers, compression; one value with a key")
    tidelog("produce", TOPIC, "-K", ":", "-H", "source=shop", "-z", "zstd", stdin=ORDERS)
    between_ms = int(time.time() * 1000) + 1
    wait_until(lambda: time.time() * 1000 > between_ms, "the clock")
    tidelog("produce", TOPIC, "-k", "dave", "-v", '{"item": "globe"}', "-H", "source=phone")

    heading("Consume: everything that is there")
    first = tidelog("consume", TOPIC, "-e", "-f", template)

    heading("Rewind: reading takes nothing away, so the same records come again")
    note("from offset 0:")
    again = tidelog("consume", TOPIC, "-o", "0", "-e", "-f", template)
    note("from a moment after the first four were written:")
    later = tidelog("consume", TOPIC, "-o", f"@{between_ms}", "-e", "-f", template)
    wanted = len(ORDERS.splitlines()) + 1
    return (
        len(first.splitlines()) == wanted
        and sorted(first.splitlines()) == sorted(again.splitlines())
        and later.splitlines() == [line for line in first.splitlines() if "dave" in line]
    )


def kill_under_load(broker: TourBroker, directory: Path) -> tuple[int, int, int]:
    """Kill the broker while records are sent; how many were acknowledged, found, lost or twice."""
    heading("A broker killed in the middle of it, and back")
    lines, acknowledged = directory / "lines.txt", directory / "acknowledged.jsonl"
    show_command(f"seq -f 'reading %.0f' {LOAD_RECORDS} > lines.txt")
    lines.write_text("".join(f"reading {number + 1}\n" for number in range(LOAD_RECORDS)))
    command = ["produce", LOAD_TOPIC, "--timeout", "30", "--format", "json"]
    show_command(f"tidelog {shlex.join(command)} < lines.txt > acknowledged.jsonl &")
    with lines.open("rb") as source, acknowledged.open("wb") as target:
        producer = subprocess.Popen(
            [*TIDELOG, *command],
            stdin=source,
            stdout=target,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        wait_until(
            lambda: _lines_in(acknowledged) >= KILL_AFTER or producer.poll() is not None, "load"
        )
        broker.kill()
        note(f"  {_lines_in(acknowledged):,} records were acknowledged by then")
        broker.start()
        _, said = producer.communicate(timeout=WAIT_SECONDS_MAX)
    finally:
        if producer.poll() is None:
            producer.kill()
            producer.communicate()
    show_output(said)
    command = ["consume", LOAD_TOPIC, "-e", "--format", "json"]
    show_command(f"tidelog {' '.join(command)} > found.jsonl")
    found = [json.loads(line) for line in run_quietly(*command).splitlines()]
    promised = {_place(json.loads(line)) for line in acknowledged.read_text().splitlines()}
    lost = len(promised - {_place(record) for record in found})
    repeated = len(found) - len({record["value"] for record in found})
    note(f"  {len(promised):,} acknowledged, {len(found):,} found, {lost} lost, {repeated} twice")
    return len(promised), len(found), lost + repeated


def _lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _place(record: dict[str, object]) -> tuple[object, object]:
    return record["partition"], record["offset"]


def show_metrics(broker: TourBroker) -> None:
    heading("Metrics, for Prometheus")
    url = f"http://{broker.metrics_address}/metrics"
    show_command(f"curl -s {url} | grep -E '{METRICS}'")
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    show_output("\n".join(line for line in text.splitlines() if re.search(METRICS, line)))
    note("  (counted since the second start)")


def tour(broker: TourBroker, directory: Path) -> bool:
    heading("A broker, with nothing to decide beforehand")
    broker.start()
    os.environ["TIDELOG_BOOTSTRAP_SERVERS"] = broker.address
    show_command(f"export TIDELOG_BOOTSTRAP_SERVERS={broker.address}")
    tidelog("cluster", "info")
    show_topics()
    same = show_records()
    acknowledged, found, wrong = kill_under_load(broker, directory)
    show_metrics(broker)
    good = same and wrong == 0 and acknowledged >= KILL_AFTER and found >= acknowledged
    verdict = paint("all counts agree", "1;32") if good else paint("COUNTS DIFFER", "1;31")
    print(
        f"\n{verdict}: 1 broker, 1 kill, {acknowledged:,} records acknowledged, {found:,} found,"
        f" {wrong} lost or repeated; rewinding {'gave the same' if same else 'DIFFERED'}"
    )
    return good


def stay(broker: TourBroker) -> None:
    print(f"\nThe broker stays up on {paint(broker.address, '1')} until Ctrl-C. Try elsewhere:")
    for command in (
        f"export TIDELOG_BOOTSTRAP_SERVERS={broker.address}",
        f"tidelog consume {TOPIC} -o end        # and in a third terminal:",
        f"tidelog produce {TOPIC} -k me",
        "tidelog topic --help",
    ):
        show_command(command)
    broker.wait(FOR_EVER)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.tour", description=__doc__)
    parser.add_argument("--once", action="store_true", help="end by itself after the last step")
    once = parser.parse_args().once
    guard()
    # These take the same way out as Ctrl-C, through every `finally`.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="tidelog-tour-"))
    broker = TourBroker(directory)
    try:
        good = tour(broker, directory)
        if not once:
            # Ctrl-C is how this ends, and no failure.
            with suppress(KeyboardInterrupt):
                stay(broker)
            print("\nstopped")
        return 0 if good else 1
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    except (RuntimeError, subprocess.SubprocessError, OSError) as error:
        print(f"{paint('the tour failed:', '1;31')} {error}", file=sys.stderr)
        return 1
    finally:
        # An impatient second Ctrl-C shall not keep the first from cleaning up.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
