"""`tidelog cluster health`: what is wrong with a cluster, and what helps."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from tidelog.cli.common import connection_options, listed, open_client, print_json, say
from tidelog.cli.faults import EXIT_FAILED, paint
from tidelog.client import admin, replica_admin
from tidelog.client.blocking import Client
from tidelog.client.faults import NetworkError
from tidelog.client.metadata import PartitionMetadata, TopicMetadata
from tidelog.errors import TidelogError
from tidelog.model import ConfigResourceType

_MIN_ISR: Final = "min.insync.replicas"
_LOOK_S: Final = 0.5
_WAIT_S: Final = 300.0


@dataclass(slots=True)
class Problem:
    """Something that keeps a cluster from being well, and what to do about it."""

    what: str
    help: str
    partitions: list[str]


@dataclass(slots=True)
class View:
    """What a cluster says of itself at one moment."""

    brokers: set[int]
    controller: int
    topics: Sequence[TopicMetadata]
    # Of topics with a replica that is not in sync.
    min_isr: Mapping[str, int]
    # By broker, the replicas that it cannot serve.
    failed: Mapping[int, Sequence[str]] = field(default_factory=dict)
    # Brokers that the cluster knows and that are not there.
    away: Collection[int] = ()


def find_problems(view: View) -> list[Problem]:
    """Everything that should be mended before another broker is stopped, the worst first."""
    found = []
    if view.controller not in view.brokers:
        found.append(
            Problem(
                "no broker is the controller: nothing can be created or changed",
                "it passes when the metadata store answers; look at the brokers' logs",
                [],
            )
        )
    found += _of_partitions(view)
    for broker, names in sorted(view.failed.items()):
        found.append(
            Problem(
                f"{_count(names)} offline on broker {broker}: it cannot use what its disk has",
                f"the log of broker {broker} and its /readyz say why; mend it and start it again,"
                f" or give its replicas to others: tidelog cluster decommission {broker} --wait",
                list(names),
            )
        )
    return found + _of_brokers(view)


def _of_brokers(view: View) -> list[Problem]:
    """Those that are not there, whether they hold something or not."""
    holders = {each for _, state in _states(view.topics) for each in state.replicas}
    found = []
    for broker in sorted(holders.union(view.away) - view.brokers):
        held = [name for name, state in _states(view.topics) if broker in state.replicas]
        leave = f"tidelog cluster decommission {broker}"
        instead = f"give its replicas to others: {leave} --wait"
        if not held:
            instead = f"have the cluster forget it: {leave}"
        problem = Problem(f"broker {broker} is not there", f"start it again, or {instead}", held)
        found.append(problem)
    return found


def _of_partitions(view: View) -> list[Problem]:
    leaderless: list[str] = []
    lost: list[str] = []
    refusing, behind = [], []
    lag: set[int] = set()
    for name, state in _states(view.topics):
        topic = name.rpartition("-")[0]
        lag |= view.brokers & {*state.replicas} - {*state.isr}
        if state.leader < 0:
            (lost if view.brokers >= {*state.replicas} else leaderless).append(name)
        elif len(state.isr) < view.min_isr.get(topic, 1):
            refusing.append(name)
        elif len(state.isr) < len(state.replicas):
            behind.append(name)
    rows = (
        (leaderless, "cannot be read or written: no replica that may lead is there",
         "start the brokers that hold them; `tidelog topic describe TOPIC` names them"),
        (lost, "cannot be read or written: every broker that holds them is there, and none is known"
         " to have all that was committed",
         "put back the data directory that a broker has lost; if it is gone, accept the loss:"
         " tidelog cluster elect TOPIC --unclean"),
        (refusing, "cannot be written with acks=all: fewer replicas are in sync than"
         " min.insync.replicas", "start the brokers that are missing, or wait until they catch up"),
        (behind, "not in sync on every replica", _help_for_lag(lag)),
    )  # fmt: skip
    return [
        Problem(f"{_count(names)} {what}", help_, names) for names, what, help_ in rows if names
    ]


def _help_for_lag(brokers: Collection[int]) -> str:
    if not brokers:
        return "they catch up when the broker is back"
    names = ", ".join(map(str, sorted(brokers)))
    return (
        f"wait until broker {names} has caught up; if it does not, its log and its /readyz say what"
        " keeps it"
    )


def _count(names: Sequence[str]) -> str:
    return f"{len(names)} partition{'s' if len(names) > 1 else ''} ({listed(names)})"


def _states(topics: Sequence[TopicMetadata]) -> list[tuple[str, PartitionMetadata]]:
    return [
        (f"{topic.name}-{number}", state)
        for topic in topics
        for number, state in sorted(topic.partitions.items())
    ]


def look(client: Client) -> View:
    """Ask the cluster."""
    described = client.run(admin.describe_cluster(client.cluster))
    topics = client.run(admin.list_topics(client.cluster))
    min_isr = {}
    for topic in topics:
        if any(len(each.isr) < len(each.replicas) for each in topic.partitions.values()):
            configs = client.run(
                admin.describe_configs(client.cluster, ConfigResourceType.TOPIC, topic.name)
            )
            min_isr[topic.name] = next(
                int(each.value or 1) for each in configs if each.name == _MIN_ISR
            )
    brokers = {broker.id for broker in described.brokers}
    away = [broker.id for broker in described.away]
    failed = _failed(client, brokers)
    return View(brokers, described.controller_id, topics, min_isr, failed, away)


def _failed(client: Client, brokers: Iterable[int]) -> dict[int, list[str]]:
    """By broker, what it says that it cannot serve. One that is just going says nothing."""
    found = {}
    for broker in sorted(brokers):
        try:
            failed = client.run(replica_admin.failed_replicas(client.cluster, broker))
        except NetworkError:
            continue
        if failed:
            found[broker] = [f"{each.topic}-{each.partition}" for each in sorted(failed)]
    return found


@click.command()
@click.option(
    "--wait",
    is_flag=True,
    help="Return once the next broker may be stopped, or with an error after"
    f" {_WAIT_S:.0f} seconds.",
)
@connection_options  # fmt: skip
def health(wait: bool, bootstrap: str, output: str, timeout_s: float) -> None:
    """Report problems of the cluster and what to do about them; exit code 1 if there are any.

    While every partition is in sync on all of its replicas, any one broker may be stopped:

    \b
    tidelog cluster health --wait && systemctl restart tidelog
    """
    deadline = time.monotonic() + (_WAIT_S if wait else 0.0)
    while True:
        view, problems = _try_look(bootstrap, timeout_s, patient=time.monotonic() < deadline)
        if not problems or time.monotonic() >= deadline:
            break
        time.sleep(_LOOK_S)
    assert view is not None
    _show(view, problems, output)
    if problems:
        raise SystemExit(EXIT_FAILED)


def _try_look(
    bootstrap: str, timeout_s: float, *, patient: bool
) -> tuple[View | None, list[Problem]]:
    try:
        with open_client(bootstrap, timeout_s) as client:
            view = look(client)
        return view, find_problems(view)
    except TidelogError as error:
        if not patient:
            raise
        # A broker that is being restarted was asked.
        return None, [Problem(str(error), "", [])]


def _show(view: View, problems: Sequence[Problem], output: str) -> None:
    single = sorted(
        topic.name for topic in view.topics if topic.partitions and _is_single(view, topic)
    )
    if output == "json":
        rows = [
            {"what": each.what, "help": each.help, "partitions": each.partitions}
            for each in problems
        ]
        print_json({"healthy": not problems, "problems": rows, "single_replica": single})
        return
    for problem in problems:
        say(paint("problem:", "31", sys.stderr), problem.what)
        say("  help:", problem.help)
    if single:
        say(f"note: {listed(single)} cannot be used while its broker is stopped: one replica")
        say("  help: tidelog topic replicate TOPIC --factor 3")
    if not problems:
        count = len(_states(view.topics))
        say(f"healthy: {len(view.brokers)} brokers, {count} partitions in sync")


def _is_single(view: View, topic: TopicMetadata) -> bool:
    return len(view.brokers) > 1 and any(
        len(each.replicas) == 1 for each in topic.partitions.values()
    )
