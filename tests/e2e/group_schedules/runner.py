"""Runs a schedule with a broker, a producer and members that are processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.group_schedules.confluent_member import to_record
from tests.e2e.group_schedules.schedule import Schedule, Step, What
from tests.e2e.group_schedules.task import (
    GROUP,
    TOPIC,
    MemberTask,
    partition_name,
    partition_number,
)
from tests.e2e.group_schedules.view import View
from tests.history.checker import check
from tests.history.events import (
    BROKER,
    CommittedRead,
    Fault,
    HistoryWriter,
    LogRead,
    Position,
    read_history,
)
from tests.history.report import Report, Rule

ROOT = Path(__file__).resolve().parents[3]
WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.02


def _broker_settings(schedule: Schedule) -> dict[str, str]:
    settings = {
        "group.min.session.timeout.ms": "500",
        "group.initial.rebalance.delay.ms": "200",
        "offsets.topic.num.partitions": "5",
    }
    if schedule.protocol == "consumer":  # here the broker says how long a session is
        settings |= {
            "group.consumer.min.session.timeout.ms": "500",
            "group.consumer.session.timeout.ms": str(schedule.session_timeout_ms),
            "group.consumer.min.heartbeat.interval.ms": "50",
            "group.consumer.heartbeat.interval.ms": "150",
        }
    return settings


@dataclass(slots=True)
class Incarnation:
    """One process in a slot."""

    name: str
    slot: int
    members: list[str]
    process: subprocess.Popen[bytes]
    stopped: bool = False


@dataclass
class Runner:
    """One run of one schedule, in one directory: histories, broker data, what programs printed."""

    schedule: Schedule
    directory: Path
    running: dict[int, Incarnation] = field(default_factory=dict)
    zombies: dict[int, Incarnation] = field(default_factory=dict)
    incarnations: int = 0

    def __post_init__(self) -> None:
        self.histories = self.directory / "histories"
        self.histories.mkdir(parents=True)
        self.writer = HistoryWriter(self.histories / "runner.jsonl")
        self.view = View(self.histories)
        self.broker = BrokerProcess(self.directory / "data", _broker_settings(self.schedule))
        self.partitions = {partition_name(each) for each in range(self.schedule.partitions)}

    # ---- processes --------------------------------------------------------------------------

    def _spawn(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with (self.directory / "programs.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"tests.e2e.group_schedules.{module}", *arguments],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log,
            )  # fmt: skip

    def _start(self, slot: int) -> None:
        schedule, size = self.schedule, self.schedule.slots[slot].members
        self.incarnations += 1
        name = f"{slot}.{self.incarnations}"
        members = [f"{name}.{each}" for each in range(size)]
        task = MemberTask(
            servers=self.broker.bootstrap_servers,
            history=str(self.histories / f"{name}.jsonl"),
            members=tuple(members),
            instances=tuple(f"{slot}-{each}" for each in range(size)) if schedule.static else (),
            client=schedule.slots[slot].client,
            protocol=schedule.protocol,
            assignor=schedule.assignor,
            commit=schedule.commit,
            commit_when_revoked=schedule.commit_when_revoked,
            session_timeout_ms=schedule.session_timeout_ms,
            work_ms=schedule.work_ms,
        )
        process = self._spawn("member", task.to_argument())
        self.running[slot] = Incarnation(name, slot, members, process)

    def _signal(self, incarnation: Incarnation, number: signal.Signals, what: str) -> None:
        self.writer.write(Fault(time.monotonic_ns(), what, incarnation.name))
        incarnation.process.send_signal(number)

    def _end(self, slot: int, number: signal.Signals, what: str) -> None:
        incarnation = self.running[slot]
        self._signal(incarnation, number, what)
        incarnation.process.wait(WAIT_SECONDS)
        del self.running[slot]

    def _held(self, incarnation: Incarnation) -> set[str]:
        return set().union(*(self.view.held[each] for each in incarnation.members))

    # ---- waiting ----------------------------------------------------------------------------

    def _live_members(self) -> list[str]:
        return [
            member for each in self.running.values() if not each.stopped for member in each.members
        ]

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            self.view.look()
            if condition():
                return
            for each in self.running.values():
                ended = {
                    name: self.view.left[name] for name in each.members if name in self.view.left
                }
                assert each.process.poll() is None and not ended, f"{each} ended: {ended}"
            held = {member: sorted(held) for member, held in self.view.held.items() if held}
            assert time.monotonic() < deadline, f"waited in vain until {what}; held: {held}"
            time.sleep(LOOK_SECONDS)

    def _settle(self, since_ns: int, partitions: set[str]) -> None:
        """Until the group is whole and these partitions have been worked on since then."""

        def settled() -> bool:
            members = self._live_members()
            return (
                self.view.heard.issuperset(members)
                and self.view.shared_by(members, len(self.partitions))
                and self.view.worked_on_since(since_ns, partitions)
            )

        self._wait("the group is whole", settled)

    # ---- steps ------------------------------------------------------------------------------

    def _take(self, step: Step) -> None:
        began_ns = time.monotonic_ns()
        self.view.look()
        target = self.running.get(step.slot)
        if step.what is What.KILL_OWNER:
            target = max(self.running.values(), key=lambda each: len(self._held(each)))
        held = self._held(target) if target is not None else set()
        if step.what in (What.KILL, What.KILL_OWNER):
            assert target is not None
            self._end(target.slot, signal.SIGKILL, "kill")
        elif step.what is What.REMOVE:
            self._end(step.slot, signal.SIGTERM, "remove")
        elif step.what is What.RESTART:
            self._end(step.slot, signal.SIGTERM, "restart")
            self._start(step.slot)
        elif step.what in (What.ADD, What.RETURN):
            self._start(step.slot)
        elif step.what is What.STOP:
            assert target is not None
            target.stopped = True
            self._signal(target, signal.SIGSTOP, "stop")
        elif step.what is What.REPLACE:
            self.zombies[step.slot] = self.running.pop(step.slot)
            self._start(step.slot)
        elif step.what is What.RESUME:
            self._resume(step.slot)
        else:
            self.writer.write(Fault(time.monotonic_ns(), "kill", BROKER))
            self.broker.kill()
            self.broker.start()
            self.writer.write(Fault(time.monotonic_ns(), "started", BROKER))
        if not step.hasty:
            # Of a process that went, what it had; else all, for anything may have moved.
            self._settle(began_ns, held or self.partitions)

    def _resume(self, slot: int) -> None:
        zombie = self.zombies.get(slot)
        if zombie is None:
            self.running[slot].stopped = False
            self._signal(self.running[slot], signal.SIGCONT, "resume")
            return
        self._signal(zombie, signal.SIGCONT, "resume")
        self._wait("the replaced members end", lambda: set(zombie.members) <= set(self.view.left))
        assert zombie.process.wait(WAIT_SECONDS) == 0
        del self.zombies[slot]

    # ---- the whole --------------------------------------------------------------------------

    def run(self) -> Report:
        """Take all steps and judge; where a step fails, what is wrong may be found all the same."""
        try:
            self._run()
        except (AssertionError, subprocess.TimeoutExpired) as failed:
            found = check(read_history(self.histories)).violations
            # Records that were not waited for are no surprise then.
            surprises = [str(each) for each in found if each.rule is not Rule.UNSEEN]
            raise AssertionError("\n".join([str(failed), *surprises[:10]])) from failed
        return check(read_history(self.histories))

    def _run(self) -> None:
        with contextlib.closing(self.writer), self.broker:
            self._create_topic()
            producer = self._spawn(
                "producer", self.broker.bootstrap_servers, str(len(self.partitions)),
                str(self.schedule.records_per_second), str(self.histories / "producer.jsonl"),
            )  # fmt: skip
            try:
                self._take_all(producer)
                self._read_all()
            finally:
                members = [*self.running.values(), *self.zombies.values()]
                for process in [producer, *(each.process for each in members)]:
                    process.kill()
                    process.wait()

    def _take_all(self, producer: subprocess.Popen[bytes]) -> None:
        for slot in range(self.schedule.started):
            self._start(slot)
        self._settle(time.monotonic_ns(), self.partitions)
        for step in self.schedule.steps:
            self._take(step)
        producer.send_signal(signal.SIGTERM)
        assert producer.wait(WAIT_SECONDS) == 0, "the producer could not send all"
        self._wait("everything is consumed", self.view.drained)
        for slot in list(self.running):
            self._end(slot, signal.SIGTERM, "end")

    def _create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        topic = NewTopic(TOPIC, len(self.partitions))
        admin.create_topics([topic])[TOPIC].result(timeout=WAIT_SECONDS)

    def _read_all(self) -> None:
        """The log from its beginning, and where the group stands."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        numbers = [partition_number(each) for each in self.partitions]
        started_ns = time.monotonic_ns()
        found = consumer.committed([TopicPartition(TOPIC, each) for each in numbers], timeout=30)
        positions = tuple(
            Position(partition_name(each.partition), each.offset if each.offset >= 0 else None)
            for each in found
        )
        self.writer.write(CommittedRead(time.monotonic_ns(), started_ns, "runner", positions))
        consumer.assign([TopicPartition(TOPIC, each, 0) for each in numbers])
        deadline = time.monotonic() + WAIT_SECONDS
        ended: set[int | None] = set()
        while len(ended) < len(numbers):
            assert time.monotonic() < deadline, f"the log was read to its end in {ended} only"
            messages = consumer.consume(1_000, 0.2)
            records = tuple(to_record(each) for each in messages if each.error() is None)
            ended |= {each.partition() for each in messages if _is_end(each)}
            self.writer.write(LogRead(time.monotonic_ns(), "runner", records))
        consumer.close()


def _is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF
