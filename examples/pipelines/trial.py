"""One example on a broker: events are sent, the pipeline runs in each mode, targets are compared.

Each mode has a directory with a copy of the pipeline's file, so that `./state` and `./lake` are its
own, and topics of its own, by what `RUN` adds to their names. With a kill, the driver of a stream
or of a catch-up is killed once a micro-batch was committed, and started again; a batch has nothing
to resume and is left alone.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from examples.pipelines.example import HERE, Example, Parts
from examples.pipelines.targets import KEEP_ALL, Comparison, DeadLetters, Place, as_texts
from examples.processes import Program
from tidelog.client.admin import NewTopic, create_topic, delete_topic
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_producer import Producer
from tidelog.client.group_admin import committed_offsets, delete_group, list_groups

MODES = ("stream", "catch-up", "batch")
SECONDS_MAX = 900.0
# How often the targets of a stream are looked at, once all records are read.
SETTLE_S, SETTLE_SECONDS_MAX = 2.0, 120.0
KILL_DELAY_S_MAX = 1.5
# A JVM that lives for a minute does not earn back what its second compiler costs.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True)
class Result:
    """What one mode came to."""

    mode: str
    comparisons: Sequence[Comparison]
    seconds: float
    kills: int

    @property
    def equal(self) -> bool:
        return all(each.equal for each in self.comparisons)

    def __str__(self) -> str:
        sign = "=" if self.equal else "≠"
        rows = ", ".join(str(each) for each in self.comparisons)
        killed = f", driver killed {self.kills} time" if self.kills else ""
        return f"{self.mode:<8} {sign} truth: {rows}{killed}, {self.seconds:.0f} s"


@dataclass
class Trial:
    """The events of an example on the way to a broker, and what must come of them."""

    name: str
    example: Example
    servers: str
    directory: Path
    parts: Parts
    chance: random.Random
    kill: bool = False
    # Where the targets' topics are; empty where the events are.
    elsewhere: str = ""
    sent: int = 0
    _created: list[str] = field(default_factory=list)
    _truth: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        records = [record for part in self.parts for record in part]
        rows = self.example.truth(records)
        self._truth = {name: as_texts(rows[name]) for name in self.example.targets}

    def create(self, topics: Iterable[NewTopic], servers: str = "") -> None:
        """One that is there already is an error: what it holds would be counted."""
        with Client(servers or self.servers) as client:
            for topic in topics:
                client.run(create_topic(client.cluster, topic))
                if not servers:
                    self._created.append(topic.name)

    def create_sources(self) -> None:
        """The topics of the events."""
        topics = self.example.topics.items()
        self.create(NewTopic(name, partitions, configs=KEEP_ALL) for name, partitions in topics)

    def remove(self) -> None:
        """Take topics and groups off a broker that others use."""
        with Client(self.servers) as client:
            for name in self._created:
                client.run(delete_topic(client.cluster, name))
            for group in client.run(list_groups(client.cluster)):
                if any(group.name.startswith(self._group(f".{mode}")) for mode in MODES):
                    client.run(delete_group(client.cluster, group.name))

    def send(self, parts: Iterable[Sequence[ProducerRecord]]) -> None:
        """Send with acks=all; each part is acknowledged before the next begins."""
        with Producer(self.servers) as producer:
            for part in parts:
                deliveries = [producer.send(record) for record in part]
                producer.flush()
                for delivery in deliveries:
                    delivery.result()
                self.sent += len(part)

    def run(self, modes: Sequence[str]) -> Iterator[Result]:
        """A result for each mode; a stream comes first, because it sees events as they are sent."""
        self.create_sources()
        for mode in sorted(modes, key=MODES.index):
            began = time.monotonic()
            place = self.prepare(mode)
            kills = self.kill and mode != "batch"
            if mode == "stream":
                self._run_stream(place)
            else:
                self._send_rest()
                if kills:
                    self._run_and_kill(place, mode)
                self._run_to_end(place, mode)
            yield Result(mode, self.compare(place), time.monotonic() - began, int(kills))

    def prepare(self, mode: str) -> Place:
        """A directory with the pipeline's file, and the topics that it writes to."""
        directory = self.directory / mode
        shutil.copytree(HERE / self.name, directory, ignore=shutil.ignore_patterns("__pycache__"))
        place = Place(directory, f".{mode}", self.elsewhere or self.servers)
        topics = (
            NewTopic(kind.topic + place.suffix, kind.partitions, configs=kind.configs)
            for kind in self.example.targets.values()
            if kind.topic
        )
        self.create(topics, self.elsewhere)
        return place

    def _driver(self, place: Place, mode: str) -> Program:
        file = str(place.directory / "pipeline.yaml")
        # A JVM that is killed leaves its temporary files, so they are kept with the rest.
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        java = f"{SHORT_LIVED} -Djava.io.tmpdir={temporary}"
        conf = ["--conf", f"spark.driver.defaultJavaOptions={java}"]
        environment = {
            "RUN": place.suffix,
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            # At least four micro-batches, so that a kill comes between two.
            "LIMIT": str(max(1000, sum(map(len, self.parts)) // 5)),
            "TIDELOG_BOOTSTRAP_SERVERS": self.servers,
            "TARGET_BOOTSTRAP_SERVERS": place.servers,
        }
        arguments = ["tidelog", "pipeline", "run", file, "--mode", mode, "--no-publish", *conf]
        return Program("driver", arguments, place.directory, environment)

    def _send_rest(self) -> None:
        before = 0
        for part in self.parts:
            if before >= self.sent:
                self.send([part])
            before += len(part)

    def _run_to_end(self, place: Place, mode: str) -> None:
        with self._driver(place, mode) as driver:
            driver.wait(SECONDS_MAX)
            driver.check(0)

    def _run_and_kill(self, place: Place, mode: str) -> None:
        """SIGKILL the driver at some moment after the first commit of a target."""
        targets = [
            name for name, kind in self.example.targets.items() if not isinstance(kind, DeadLetters)
        ]

        def committed() -> bool:
            return any(
                list((place.directory / "state" / target / "commits").glob("[0-9]*"))
                for target in targets
            )

        with self._driver(place, mode) as driver:
            driver.wait_until(committed, "a committed micro-batch", SECONDS_MAX)
            time.sleep(self.chance.uniform(0, KILL_DELAY_S_MAX))
            driver.check()
            driver.kill()

    def _run_stream(self, place: Place) -> None:
        """Started when the first part is there; the others come while it runs."""
        self.send(self.parts[:1])
        if self.kill:
            self._run_and_kill(place, "stream")
        with self._driver(place, "stream") as driver:
            self._send_rest()
            driver.wait_until(lambda: self._is_read(place), "all to be read", SECONDS_MAX)
            # What is read last closes windows, which are written a micro-batch later.
            deadline = time.monotonic() + SETTLE_SECONDS_MAX
            while time.monotonic() < deadline and driver.running:
                time.sleep(SETTLE_S)
                if all(each.equal for each in self.compare(place)):
                    break
            driver.stop()
            driver.check(0)

    def _is_read(self, place: Place) -> bool:
        """Whether the pipeline's group, which is where the slowest target is, is at the end."""
        group = self._group(place.suffix)
        with Client(self.servers) as client:
            return sum(client.run(committed_offsets(client.cluster, group)).values()) == self.sent

    def _group(self, suffix: str) -> str:
        return f"tidelog.{self.name.replace('_', '-')}{suffix}"

    def compare(self, place: Place) -> list[Comparison]:
        """Every target as it is now, beside the truth."""
        return [
            Comparison(name, kind.held(place, self._truth[name]), Counter(self._truth[name]))
            for name, kind in self.example.targets.items()
        ]
