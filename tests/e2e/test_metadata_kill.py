"""SIGKILL during metadata changes: every call is wholly done or not done, and stays as answered.

A child process runs the controller on the embedded store and makes calls from eight workers at
once; before each call and after each answer it writes a line. The parent kills it at random
moments, also while it starts, reads the store and compares it with the lines: what was answered is
there, what was only asked is there in full or not at all, and nothing else is. Identifiers (topic
ids, producer ids, broker epochs) are never given twice over all lives.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tidelog
from tests.unit.cluster.helpers import join
from tidelog.cluster import layout
from tidelog.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Answer,
    Command,
    ConfigChange,
    CreatedTopic,
    CreateTopic,
    DeleteTopic,
    ProducerIdBlock,
)
from tidelog.cluster.controller import Controller
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.office import Place
from tidelog.cluster.planner import PlannerRules
from tidelog.host.disk import SystemDisk
from tidelog.host.offload import ThreadOffload
from tidelog.host.random import SystemRandom
from tidelog.model import ConfigResourceType
from tidelog.store.embedded import EmbeddedStore

CALLS_MIN = 1000
KILLS_IN_FLIGHT_MIN = 20
KILLS_AT_START = 5
WORKERS = 8
FILE = "metadata.db"


# ---- the child ----------------------------------------------------------------------------


def say(kind: str, **fields: object) -> None:
    os.write(1, f"{json.dumps({'kind': kind, **fields})}\n".encode())


async def open_store(directory: str) -> EmbeddedStore:
    path = os.path.join(directory, FILE)
    return await EmbeddedStore.open(path, SystemDisk(), ThreadOffload("store", 1))


async def live(directory: str, seed: int, calls: int) -> None:
    """One life: open, claim, register, then call until `calls` are answered or the kill comes."""
    say("begin")
    store = await open_store(directory)
    controller = Controller(store, Place(0), PlannerRules(SystemRandom()))
    await controller.start()
    registration = await join(store, controller, 0)
    say("registered", epoch=registration.epoch)
    async with asyncio.TaskGroup() as group:
        for worker in range(WORKERS):
            source = random.Random(seed * WORKERS + worker)
            group.create_task(work(controller, source, worker, calls // WORKERS))
    await controller.close()
    await store.close()


async def work(controller: Controller, source: random.Random, worker: int, calls: int) -> None:
    for n in range(calls):
        command, fields = choose(controller.image, source, worker)
        say("ask", worker=worker, **fields)
        answer = await controller.submit(command)
        say("answer", worker=worker, n=n, **answer_fields(answer))


def choose(
    image: MetadataImage, source: random.Random, worker: int
) -> tuple[Command, dict[str, object]]:
    """A call that must succeed, on a topic that only this worker touches."""
    name = f"w{worker}-t{source.randrange(4)}"
    topic = image.topics.get(name)
    epoch = image.brokers[0].epoch
    if source.random() < 0.1:
        return AllocateProducerIds(0, epoch), {"call": "allocate"}
    if topic is None:
        partitions = source.randrange(1, 20)
        configs = {"retention.ms": str(source.randrange(1000))}
        fields = {"call": "create", "name": name, "partitions": partitions, "configs": configs}
        return CreateTopic(name, partitions, configs=configs), fields
    action = source.randrange(3)
    if action == 0:
        return DeleteTopic(name), {"call": "delete", "name": name}
    if action == 1:
        count = len(topic.partitions) + source.randrange(1, 5)
        return AddPartitions(name, count), {"call": "add", "name": name, "partitions": count}
    configs = {
        "retention.ms": str(source.randrange(1000)),
        "leader.replication.throttled.replicas": ",".join(["0:0"] * source.randrange(75)),
    }
    changes = [ConfigChange(*each) for each in configs.items()]
    return (
        AlterConfigs(ConfigResourceType.TOPIC, name, changes, replace=True),
        {"call": "alter", "name": name, "configs": configs},
    )


def answer_fields(answer: Answer) -> dict[str, object]:
    if isinstance(answer, CreatedTopic):
        return {"id": answer.topic_id.hex}
    if isinstance(answer, ProducerIdBlock):
        return {"first": answer.first, "size": answer.size}
    return {}


# ---- the parent ---------------------------------------------------------------------------


@dataclass(slots=True)
class Topic:
    """A topic as the lines say that it is; the id is unknown until it was answered or seen."""

    partitions: int
    configs: dict[str, str]
    topic_id: str | None = None


@dataclass(slots=True)
class Ledger:
    """What was asked, answered and seen over all lives."""

    topics: dict[str, Topic] = field(default_factory=dict)
    asked: dict[int, dict[str, Any]] = field(default_factory=dict)
    topic_ids: set[str] = field(default_factory=set)
    producer_ids: set[int] = field(default_factory=set)
    next_producer_id: int = 0
    broker_epochs: list[int] = field(default_factory=list)
    leader_epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    cluster_ids: set[str] = field(default_factory=set)
    registered: bool = False
    calls: int = 0
    answered: int = 0
    kills: int = 0
    kills_in_flight: int = 0
    kills_at_start: int = 0
    unanswered_done: int = 0
    unanswered_not_done: int = 0

    def note(self, line: bytes) -> str:
        """Take in a line of the child; its kind."""
        fields = json.loads(line)
        match fields["kind"]:
            case "registered":
                self.registered = True
                assert all(fields["epoch"] > each for each in self.broker_epochs)
                self.broker_epochs.append(fields["epoch"])
            case "ask":
                self.calls += 1
                assert fields["worker"] not in self.asked
                self.asked[fields["worker"]] = fields
            case "answer":
                self.answered += 1
                self.note_answer(self.asked.pop(fields["worker"]), fields)
        return str(fields["kind"])

    def note_answer(self, asked: dict[str, Any], answer: dict[str, Any]) -> None:
        if asked["call"] == "allocate":
            block = range(answer["first"], answer["first"] + answer["size"])
            assert self.producer_ids.isdisjoint(block), "a producer id was given twice"
            self.producer_ids.update(block)
            return
        name = asked["name"]
        after = changed(self.topics.get(name), asked)
        if after is None:
            del self.topics[name]
            return
        if asked["call"] == "create":
            self.see_new_id(answer["id"])
            after.topic_id = answer["id"]
        self.topics[name] = after

    def see_new_id(self, topic_id: str) -> None:
        assert topic_id not in self.topic_ids, "a topic id was given twice"
        self.topic_ids.add(topic_id)


def changed(before: Topic | None, asked: dict[str, Any]) -> Topic | None:
    """The topic after a call."""
    if asked["call"] == "delete":
        return None
    if asked["call"] == "create":
        return Topic(asked["partitions"], asked["configs"])
    assert before is not None
    partitions = asked.get("partitions", before.partitions)
    return Topic(partitions, asked.get("configs", before.configs), before.topic_id)


def check_store(directory: Path, ledger: Ledger) -> None:
    """Compare what is in the store with what the lines say, then take over what was open."""

    async def read() -> tuple[MetadataImage, set[str]]:
        store = await open_store(str(directory))
        try:
            tree = await store.tree("/")
            if not tree:
                return MetadataImage(), set()
            return layout.load(tree).image, {path for path in tree if path.startswith("/topics/")}
        finally:
            await store.close()

    image, paths = asyncio.run(read())
    check_topics(image, ledger)
    check_no_half_topic(image, paths)
    check_epochs(image, ledger)
    check_producer_ids(image, ledger)
    if image.cluster_id:
        ledger.cluster_ids.add(image.cluster_id)
    assert len(ledger.cluster_ids) <= 1
    ledger.asked.clear()
    ledger.registered = False


def check_topics(image: MetadataImage, ledger: Ledger) -> None:
    open_calls = {each["name"]: each for each in ledger.asked.values() if "name" in each}
    for name in image.topics.keys() | ledger.topics.keys() | open_calls.keys():
        before = ledger.topics.get(name)
        found = image.topics.get(name)
        seen = found and Topic(len(found.partitions), dict(found.configs), found.topic_id.hex)
        if name in open_calls:
            after = changed(before, open_calls[name])
            if after is not None and after.topic_id is None and seen is not None:
                # Created, but the answer did not come through.
                ledger.see_new_id(str(seen.topic_id))
                after.topic_id = seen.topic_id
            assert seen in (before, after), f"{name} is half changed: {before} {after} {seen}"
            if seen == after:
                ledger.unanswered_done += 1
            else:
                ledger.unanswered_not_done += 1
        else:
            assert seen == before, f"{name} is not as answered"
        if seen is None:
            ledger.topics.pop(name, None)
        else:
            ledger.topics[name] = seen


def check_no_half_topic(image: MetadataImage, paths: set[str]) -> None:
    expected = set()
    for topic in image.topics.values():
        folder = f"/topics/{topic.name}"
        expected |= {folder, f"{folder}/partitions"}
        expected |= {f"{folder}/partitions/{n}" for n in range(len(topic.partitions))}
    assert paths == expected


def check_epochs(image: MetadataImage, ledger: Ledger) -> None:
    """Leader epochs of what was there before rose for all partitions or for none."""
    epochs = {
        (topic.topic_id.hex, state.partition): state.leader_epoch
        for topic in image.topics.values()
        for state in topic.partitions
    }
    rises = {
        epoch - ledger.leader_epochs[key]
        for key, epoch in epochs.items()
        if key in ledger.leader_epochs
    }
    assert len(rises) <= 1, f"the leader epochs rose unevenly: {rises}"
    # One step where the broker was seen to be gone, one where it came back.
    assert rises <= ({1, 2} if ledger.registered else {0, 1, 2})
    ledger.leader_epochs = epochs


def check_producer_ids(image: MetadataImage, ledger: Ledger) -> None:
    in_flight = sum(each["call"] == "allocate" for each in ledger.asked.values())
    given = max(ledger.producer_ids, default=-1) + 1
    assert image.next_producer_id >= max(given, ledger.next_producer_id)
    assert image.next_producer_id <= max(given, ledger.next_producer_id) + 1000 * in_flight
    ledger.next_producer_id = image.next_producer_id


def run_life(directory: Path, ledger: Ledger, source: random.Random, kill: str) -> None:
    """Start a child, kill it (at its start, amid its calls, or not), take in all of its lines."""
    roots = (Path(tidelog.__file__).parents[1], Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))}
    seed = source.randrange(1 << 30)
    calls = 10_000 if kill else 80
    with subprocess.Popen(
        [sys.executable, __file__, str(directory), str(seed), str(calls)],
        stdout=subprocess.PIPE,
        env=environment,
    ) as child:
        assert child.stdout is not None
        lines_left = source.randrange(20, 140)
        for line in child.stdout:
            kind = ledger.note(line)
            lines_left -= 1
            if (kill == "start" and kind == "begin") or (kill == "calls" and lines_left <= 0):
                # Where in the work at hand the kill hits is left to chance.
                time.sleep(source.random() * (0.02 if kill == "start" else 0.003))
                child.kill()
                ledger.kills += 1
                break
        for line in child.stdout:
            ledger.note(line)
        child.wait()
    assert child.returncode == (-signal.SIGKILL if kill else 0)
    if kill == "start":
        ledger.kills_at_start += 1
    if ledger.asked:
        ledger.kills_in_flight += 1


def test_sigkill_leaves_each_metadata_call_wholly_done_or_not_done(tmp_path: Path) -> None:
    ledger = Ledger()
    source = random.Random()
    while (
        ledger.calls < CALLS_MIN
        or ledger.kills_in_flight < KILLS_IN_FLIGHT_MIN
        or ledger.kills_at_start < KILLS_AT_START
    ):
        at_start = ledger.kills % 5 == 0
        run_life(tmp_path, ledger, source, "start" if at_start else "calls")
        check_store(tmp_path, ledger)
    run_life(tmp_path, ledger, source, "")
    assert not ledger.asked
    check_store(tmp_path, ledger)
    print(
        f"kills={ledger.kills} in_flight={ledger.kills_in_flight} at_start={ledger.kills_at_start}"
        f" calls={ledger.calls} answered={ledger.answered} unanswered_done={ledger.unanswered_done}"
        f" unanswered_not_done={ledger.unanswered_not_done} topic_ids={len(ledger.topic_ids)}"
        f" producer_ids={len(ledger.producer_ids)} half=0 lost=0 reused=0"
    )
    assert ledger.calls >= CALLS_MIN
    assert ledger.kills_in_flight >= KILLS_IN_FLIGHT_MIN
    assert ledger.kills_at_start >= KILLS_AT_START
    assert ledger.unanswered_done + ledger.unanswered_not_done >= KILLS_IN_FLIGHT_MIN
    assert len(ledger.topic_ids) >= 100
    assert len(ledger.producer_ids) >= 10_000


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
