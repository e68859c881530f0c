"""The starters do what their docstrings say, as processes, with some of them killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.example_process import ExampleProcess, documented, prepare, shapes

# As `tidelog up` has them.
SETTINGS = {"auto.create.topics.enable": "true", "group.initial.rebalance.delay.ms": "0"}
PUBLISH = "publish 'rain at noon' 'sun at four'"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        yield broker.bootstrap_servers


def test_hello_world_is_received_by_one_who_came_before(servers: str) -> None:
    shown = documented("hello_world")
    with ExampleProcess(servers, "hello_world", "receive") as receiver:
        receiver.wait_for_line("waiting")
        with ExampleProcess(servers, "hello_world", "send") as sender:
            assert sender.ends() == shown["send"]
        receiver.wait_for_line("received")
        assert receiver.stop(signal.SIGINT) == shown["receive"]


def test_hello_world_is_received_by_one_who_comes_later_and_only_once(servers: str) -> None:
    shown = documented("hello_world")
    with ExampleProcess(servers, "hello_world", "send") as sender:
        assert sender.ends() == shown["send"]
    with ExampleProcess(servers, "hello_world", "receive") as receiver:
        receiver.wait_for_line("received")
        assert receiver.stop() == shown["receive"]
    with (
        ExampleProcess(servers, "hello_world", "receive") as again,
        ExampleProcess(servers, "hello_world", "send", "and again") as sender,
    ):
        assert sender.ends() == ["sent 'and again' (partition 0, offset 1)"]
        again.wait_for_line("received")
        assert again.stop()[1:] == ["received 'and again' (partition 0, offset 1)"]


def tasks(worker: ExampleProcess, what: str) -> list[str]:
    """The tasks that a worker said it has started, or done."""
    return [line.split()[-1] for line in worker.lines if f": {what} " in line]


def partitions(lines: list[str]) -> list[str]:
    """What the last line about it says that the process has."""
    said = [line for line in lines if " partitions " in line]
    return said[-1].partition(" partitions ")[2].split() if said else []


def test_a_killed_workers_task_is_done_by_another_of_those_who_compete(servers: str) -> None:
    shown = documented("work_queue")
    prepare(servers, "work_queue")
    with (
        ExampleProcess(servers, "work_queue", "work", "anna") as anna,
        ExampleProcess(servers, "work_queue", "work", "bob") as bob,
    ):
        for worker in (anna, bob):
            worker.wait_for(lambda lines: len(partitions(lines)) == 3)
        quick = ["send", "12", "--seconds", "0.05", "--label", "quick"]
        with ExampleProcess(servers, "work_queue", *quick) as sender:
            assert shapes(sender.ends()) == shapes(shown["send 6 --seconds 2"])
        for worker in (anna, bob):
            worker.wait_for(lambda lines: sum(": done quick-" in line for line in lines) == 6)
        # They competed: each task was done by one of them, and both had some.
        done = tasks(anna, "done") + tasks(bob, "done")
        assert sorted(done) == sorted(f"quick-{number}" for number in range(1, 13))

        slow = ["send", "6", "--seconds", "1", "--label", "slow"]
        with ExampleProcess(servers, "work_queue", *slow) as sender:
            sender.ends()
        anna.wait_for_line("started slow-")
        anna.kill()
        assert ": started slow-" in anna.lines[-1], anna.lines
        bob.wait_for(lambda lines: sum(": done slow-" in line for line in lines) == 6)
        assert anna.lines[-1].split()[-1] in tasks(bob, "done")
        # Nothing that anna had finished before was done again.
        assert sorted(tasks(anna, "done") + tasks(bob, "done")) == sorted(
            done + [f"slow-{number}" for number in range(1, 7)]
        )
        bob.stop()
        assert shapes(shown["work anna"]) <= shapes(anna.lines)
        assert shapes(shown["work bob"]) <= shapes(bob.lines)


def test_every_subscriber_gets_every_message_from_when_it_came(servers: str) -> None:
    shown = documented("publish_subscribe")
    prepare(servers, "publish_subscribe")

    def start(name: str, *options: str) -> ExampleProcess:
        return ExampleProcess(servers, "publish_subscribe", "subscribe", name, *options)

    def publish(*texts: str) -> list[str]:
        with ExampleProcess(servers, "publish_subscribe", "publish", *texts) as publisher:
            return publisher.ends()

    with start("anna") as anna, start("bob") as bob:
        for each in (anna, bob):
            each.wait_for_line("subscribed")
        assert publish("rain at noon", "sun at four") == shown[PUBLISH]
        for each in (anna, bob):
            each.wait_for_line("sun at four")
        assert anna.lines == shown["subscribe anna"]
        assert bob.stop() == [line.replace("anna", "bob") for line in shown["subscribe anna"]]
        with start("carol", "--from-start") as carol, start("dora") as dora:
            carol.wait_for_line("sun at four")
            assert carol.lines == shown["subscribe carol --from-start"]
            dora.wait_for_line("subscribed")
            publish("snow at six")
            # Nobody waits for bob, who has gone.
            for each in (anna, carol, dora):
                each.wait_for_line("snow at six")
            assert dora.stop() == ["dora: subscribed", "dora: got 'snow at six'"]
            assert carol.stop()[-1] == "carol: got 'snow at six'"
        assert anna.stop() == [*shown["subscribe anna"], "anna: got 'snow at six'"]
