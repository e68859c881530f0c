"""The starters do what their docstrings say, as processes, with some of them killed."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.example_process import ExampleProcess, Lines, documented, prepare, shapes

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


SITE_EVENTS = 300
# Of five events that the site repeats, those that an application acts upon.
ACTS_UPON = {
    "warehouse": (1, 2, 3, 4, 5),
    "recommendations": (1, 2, 3),
    "security": (5,),
    "sales": (4,),
}


def numbers(lines: list[str]) -> list[int]:
    """The numbers of the events that lines tell of."""
    return [int(found[0]) for line in lines if (found := re.search(r"\d+", line))]


def expected(application: str) -> list[int]:
    every = range(1, SITE_EVENTS + 1)
    return [each for each in every if (each - 1) % 5 + 1 in ACTS_UPON[application]]


def test_one_site_feeds_applications_that_join_and_stop_as_they_like(servers: str) -> None:
    shown = documented("site_and_applications")
    prepare(servers, "site_and_applications")

    def start(*arguments: str) -> ExampleProcess:
        return ExampleProcess(servers, "site_and_applications", *arguments)

    def complete(application: str) -> Callable[[list[str]], bool]:
        return lambda lines: sorted(set(numbers(lines))) == expected(application)

    with ExitStack() as running:
        applications = {
            name: running.enter_context(start("application", name))
            for name in ("warehouse", "recommendations", "security")
        }
        for each in applications.values():
            each.wait_for_line("is up")
        pace = ["--events", str(SITE_EVENTS), "--per-second", "100"]
        site = running.enter_context(start("site", *pace))

        # In the midst of it one is suspended, one is stopped, and a fourth one joins.
        applications["security"].wait_for_line("(event 10)")
        applications["security"].process.send_signal(signal.SIGSTOP)
        applications["recommendations"].wait_for_line("(event 13)")
        before = applications["recommendations"].stop()
        applications["sales"] = running.enter_context(start("application", "sales"))

        # The site is the same process, and it, the first and the fourth one finish all the same.
        sent = site.ends()
        assert sorted(numbers(sent)) == list(range(1, SITE_EVENTS + 1))
        for name in ("warehouse", "sales"):
            applications[name].wait_for(complete(name))
        assert not complete("security")(applications["security"].lines)
        assert not complete("recommendations")(before)

        # Those that were not there miss nothing, and one that was stopped in order repeats nothing.
        applications["security"].process.send_signal(signal.SIGCONT)
        applications["security"].wait_for(complete("security"))
        again = running.enter_context(start("application", "recommendations"))
        again.wait_for(lambda lines: complete("recommendations")(before + lines))
        said = {name: each.lines for name, each in applications.items()}
        said["recommendations"] = before + again.lines
        for name, lines in said.items():
            assert sorted(numbers(lines)) == expected(name)
            assert set(shown[f"application {name}"]) <= set(lines)
        assert set(shown["site --events 50 --per-second 10"]) <= set(sent)
        for each in (applications["warehouse"], applications["security"], again):
            each.stop()
        # Events of one visitor came in their order.
        anns = numbers([line for line in said["warehouse"] if "(ann " in line])
        assert anns == sorted(anns) and len(anns) == 2 * SITE_EVENTS // 5


NAMES = ("anna", "bob")
DID = re.compile(
    r"(\w+): (sensor-\d+) reading (\d+) \(partition (\d+), offset (\d+), thread (\d+)\)"
)


def until(output: Lines, condition: Callable[[list[str]], bool]) -> None:
    assert output.wait_for(condition), output.lines[-100:]


def count_by(name: str, lines: list[str]) -> int:
    return sum(line.startswith(f"{name}: sensor") for line in lines)


def test_worker_threads_keep_the_order_of_each_partition_through_rebalances(servers: str) -> None:
    shown = documented("worker_threads")
    prepare(servers, "worker_threads")

    def start(name: str) -> ExampleProcess:
        return ExampleProcess(servers, "worker_threads", "consume", name, shared=output)

    with (
        Lines() as output,
        ExampleProcess(servers, "worker_threads", "send", "--per-second", "250") as sender,
        start("anna") as anna,
    ):
        until(output, lambda lines: count_by("anna", lines) >= 100)
        with start("bob") as bob:
            # Two rebalances with both at work: one joins, the other leaves.
            until(output, lambda lines: count_by("bob", lines) >= 100)
            had = count_by("anna", output.lines)
            until(output, lambda lines: count_by("anna", lines) >= had + 100)
            anna.stop()
            until(output, lambda lines: "bob: has partitions 0 1 2 3 4 5" in lines)
            had = count_by("bob", output.lines)
            until(output, lambda lines: count_by("bob", lines) >= had + 100)
            (total,) = sender.stop()
            sent = int(total.split()[1])
            until(output, lambda lines: sum(count_by(name, lines) for name in NAMES) >= sent)
            bob.stop()
    assert shapes([total]) == shapes(shown["send --per-second 200"])
    assert shapes(shown["consume anna --threads 4"]) <= shapes(output.lines)

    did = [DID.fullmatch(line) for line in output.lines]
    done = [found.groups() for found in did if found is not None]
    assert len(done) == sent, "something was done twice"
    handed_over = 0
    for partition in range(6):
        here = [each for each in done if int(each[3]) == partition]
        assert [int(each[4]) for each in here] == list(range(len(here))), partition
        takers = [each[0] for each in here]
        handed_over += sum(one != other for one, other in pairwise(takers))
    # Every partition of anna's went over to bob, some with the first rebalance, and not back.
    assert handed_over == 6
    for name in NAMES:
        assert len({each[5] for each in done if each[0] == name}) == 4, "threads stood idle"
    for sensor in {each[1] for each in done}:
        readings = [int(each[2]) for each in done if each[1] == sensor]
        assert readings == list(range(1, len(readings) + 1))


def test_every_order_is_billed_once_though_the_programs_that_bill_are_killed(servers: str) -> None:
    shown = documented("exactly_once")
    prepare(servers, "exactly_once")

    def start(name: str) -> ExampleProcess:
        return ExampleProcess(servers, "exactly_once", "bill", name)

    with ExampleProcess(servers, "exactly_once", "order", "2000") as sender:
        assert sender.ends() == shown["order 2000"]
    with ExitStack() as stack:
        # In the midst of the orders; then when they are being dealt out anew.
        for name, word in (("billing-1", "billed"), ("billing-2", "ready"), ("billing-1", "ready")):
            with start(name) as killed:
                killed.wait_for_line(word)
                killed.kill()
                assert shapes(killed.lines) <= shapes(shown[f"bill {name}"])
        last = [stack.enter_context(start(name)) for name in ("billing-1", "billing-2")]
        with ExampleProcess(servers, "exactly_once", "check", "2000") as auditor:
            assert auditor.ends() == shown["check 2000"]
        for each in last:
            each.stop()


def test_a_program_under_whose_name_another_started_bills_nothing_more(servers: str) -> None:
    prepare(servers, "exactly_once")
    with (
        ExampleProcess(servers, "exactly_once", "bill", "billing-1") as replaced,
        ExampleProcess(servers, "exactly_once", "order", "300") as sender,
    ):
        sender.ends()
        replaced.wait_for_line("billed 300")
        with ExampleProcess(servers, "exactly_once", "bill", "billing-1") as heir:
            heir.wait_for_line("ready")
            with ExampleProcess(servers, "exactly_once", "order", "300") as sender:
                sender.ends()
            replaced.ends(1)
            heir.wait_for_line("billed")
            heir.stop()
