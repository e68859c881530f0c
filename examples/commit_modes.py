"""What each way to commit costs, loses and repeats: `python -m examples.commit_modes`.

For each mode a topic is filled with the numbers from 0 on, and a consumer works on them. It is
killed with SIGKILL after it has done so and so many of them, started again, killed again: the same
schedule for every mode, made from the seed. What was done is read from the file to which the
consumer appends a line per message, so it is known without asking the log:

- lost: numbers that are not in the file, though the consumer went on to the end of the topic;
- repeated: lines beyond the first of each number;
- messages/s: lines per second, while the consumer was at work.

Needs a broker (`tidelog up`) and `pip install confluent-kafka`. The consumers, five loops of a few
lines each, are in examples/commit_mode_consumer.py; the pages on them in docs/commits/.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.commit_mode_consumer import LINE_BYTES, MODES
from scripts.guardian import guard

PARTITIONS = 3
HEADING = "mode          kills  processed  messages/s   lost  repeated"
NOTES = {"auto-thread": "  <- the trap"}


@dataclass(frozen=True)
class Schedule:
    """How many messages there are, and how many each consumer may do before it is killed."""

    messages: int
    lives: list[int]
    work_us: int

    @classmethod
    def seeded(cls, messages: int, kills: int, seed: int, work_us: int) -> Schedule:
        # Three quarters of the messages at most, so that the last life has something to do.
        shortest, longest = messages // (4 * kills), 3 * messages // (4 * kills)
        chance = random.Random(seed)
        return cls(messages, [chance.randint(shortest, longest) for _ in range(kills)], work_us)


@dataclass
class Outcome:
    """What became of one mode under the schedule."""

    messages: int
    done: Counter[int]
    kills: int
    seconds: float

    @property
    def processed(self) -> int:
        return self.done.total()

    @property
    def lost(self) -> int:
        return self.messages - len(self.done)

    @property
    def repeated(self) -> int:
        return self.processed - len(self.done)


class Consumption:
    """The consumers of one mode, one after the other, over one file."""

    def __init__(self, command: list[str], output: Path) -> None:
        self._command = command
        self._output = output
        self.kills = 0
        self.seconds_at_work = 0.0
        output.touch()

    def lines(self) -> int:
        return self._output.stat().st_size // LINE_BYTES

    def live(self, lines_max: int | None) -> bool:
        """One life: until so many lines were added, or to its own end; whether it was killed."""
        before = seen = self.lines()
        started = last = 0.0
        with subprocess.Popen(self._command) as consumer:
            try:
                while consumer.poll() is None:
                    now, lines = time.monotonic(), self.lines()
                    if lines > seen:
                        started, last, seen = started or now, now, lines
                    if lines_max is not None and lines - before >= lines_max:
                        break
                    time.sleep(0.001)
            finally:
                consumer.kill()
        self.seconds_at_work += last - started
        if consumer.returncode > 0:
            raise RuntimeError(f"the consumer ended with exit code {consumer.returncode}")
        self.kills += consumer.returncode < 0
        return consumer.returncode < 0


def fill(servers: str, topic: str, messages: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise KafkaException(error)

    for number in range(messages):
        partition = number % PARTITIONS
        producer.produce(topic, str(number), partition=partition, on_delivery=delivered)
        if number % 10_000 == 0:
            producer.flush()  # its buffer has room for 100,000
    producer.flush()


def measure(servers: str, mode: str, schedule: Schedule) -> Outcome:
    admin = AdminClient({"bootstrap.servers": servers})
    topic = f"commit-modes-{mode}-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result()
    try:
        fill(servers, topic, schedule.messages)
        with tempfile.TemporaryDirectory() as directory:
            output = Path(directory) / "done"
            command = [
                sys.executable, "-m", "examples.commit_mode_consumer", mode, "--topic", topic,
                "--output", str(output), "--work-us", str(schedule.work_us),
                "--bootstrap-servers", servers,
            ]  # fmt: skip
            consumption = Consumption(command, output)
            killed = all(consumption.live(lines_max) for lines_max in schedule.lives)
            if killed:
                consumption.live(None)
            done = Counter(map(int, output.read_text().split()))
    finally:
        admin.delete_topics([topic])[topic].result()
    return Outcome(schedule.messages, done, consumption.kills, consumption.seconds_at_work)


def report(mode: str, outcome: Outcome) -> None:
    rate = outcome.processed / outcome.seconds
    print(
        f"{mode:<13} {outcome.kills:>5} {outcome.processed:>10,} {rate:>11,.0f}"
        f" {outcome.lost:>6,} {outcome.repeated:>9,}{NOTES.get(mode, '')}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.commit_modes")
    parser.add_argument("mode", nargs="*", help=f"of {', '.join(MODES)}; all by default")
    parser.add_argument("--messages", type=int, default=20_000, metavar="N")
    parser.add_argument("--kills", type=int, default=5, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--work-us", type=int, default=200, metavar="N", help="per message")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("TIDELOG_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.mode) - set(MODES):
        parser.error(f"there is no mode {', '.join(sorted(unknown))}")
    if arguments.kills < 1 or arguments.messages < 100 * arguments.kills:
        parser.error("a kill at least, and a hundred messages for each")
    guard()
    # SIGTERM ends as Ctrl-C does: the consumer is killed, the topic deleted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    schedule = Schedule.seeded(
        arguments.messages, arguments.kills, arguments.seed, arguments.work_us
    )
    print(
        f"{schedule.messages:,} messages, {schedule.work_us} µs of work each; SIGKILL after"
        f" {' '.join(map(str, schedule.lives))} of them (seed {arguments.seed})"
    )
    print(HEADING, flush=True)
    try:
        for mode in arguments.mode or MODES:
            report(mode, measure(arguments.bootstrap_servers, mode, schedule))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
