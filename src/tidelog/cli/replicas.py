"""`tidelog cluster reassign|elect|decommission` and `tidelog topic replicate`: replicas move."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import click

from tidelog.cli.common import (
    complete_topic,
    connection_options,
    listed,
    open_client,
    print_rows,
    say,
)
from tidelog.cli.faults import (
    EXIT_FAILED,
    EXIT_UNKNOWN_TOPIC,
    EXIT_USAGE,
    CliError,
    hint_for,
)
from tidelog.cli.moves import moving, wait_until_moved
from tidelog.cli.unclean import elect_unclean
from tidelog.client import admin, replica_admin, throttling
from tidelog.client.blocking import Client
from tidelog.client.metadata import TopicMetadata
from tidelog.client.replica_admin import Outcomes, Spread
from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition

_wait_option = click.option("--wait", is_flag=True, help="Return when the replicas are there.")


@click.command()
@click.argument("topics", nargs=-1, shell_complete=complete_topic)
@click.option("-p", "--partition", type=int, help="This partition alone.")
@click.option(
    "--to",
    "brokers",
    metavar="BROKER,…",
    help="The brokers that hold the replicas from now on, the preferred leader first.",
)
@click.option("--cancel", is_flag=True, help="Stop what is being moved.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Copy no more than this in a second, on each broker; waits as --wait does.",
)
@_wait_option
@connection_options  # fmt: skip
def reassign(
    topics: tuple[str, ...],
    partition: int | None,
    brokers: str | None,
    cancel: bool,
    **options: Any,
) -> None:
    """Reassign replicas to other brokers; without a topic, show ongoing reassignments.

    \b
    tidelog cluster reassign
    tidelog cluster reassign orders -p 0 --to 2,0,1 --wait
    tidelog cluster reassign orders --to 2,0,1 --throttle 10000000
    tidelog cluster reassign orders --cancel
    """
    throttle, wait = options.pop("throttle"), options.pop("wait")
    connection = options
    with open_client(**connection) as client:
        if not topics:
            _show_moves(client, connection["output"])
            return
        if bool(brokers) == cancel:
            raise CliError("say where to", "give --to BROKER,… or --cancel", EXIT_USAGE)
        if cancel and throttle:
            raise CliError("nothing is copied by --cancel", "leave --throttle out", EXIT_USAGE)
        if cancel:
            _stop_moves(client, _places(client, topics, partition))
            return
        wanted = _broker_ids(brokers or "")
        places = dict.fromkeys(_places(client, topics, partition), wanted)
        if throttle:
            _move_throttled(client, places, throttle)
        else:
            _move(client, places, wait=wait)


@click.command()
@click.argument("topics", nargs=-1, shell_complete=complete_topic)
@click.option("-p", "--partition", type=int, help="This partition alone.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Let any replica lead that is there, although committed records may be lost.",
)
@connection_options  # fmt: skip
def elect(topics: tuple[str, ...], partition: int | None, unclean: bool, **connection: Any) -> None:
    """Elect the preferred (first) replica as leader; without a topic, everywhere.

    \b
    tidelog cluster elect
    tidelog cluster elect orders -p 0 --unclean
    """
    if unclean and not topics:
        raise CliError("--unclean needs a topic", "name what may lose records", EXIT_USAGE)
    with open_client(**connection) as client:
        places = _places(client, topics, partition) if topics else None
        if unclean and places is not None:
            outcomes = elect_unclean(client, places)
        else:
            outcomes = client.run(replica_admin.elect_leaders(client.cluster, places))
    needed, unneeded = _split(outcomes, ErrorCode.ELECTION_NOT_NEEDED)
    if unneeded:
        led = "have a leader" if unclean else "are led by their first replica"
        say(f"{len(unneeded)} of {len(outcomes)} partitions {led} already")
    if needed or not unneeded:
        _report(needed, "elected a leader for")


@click.command()
@click.argument("broker", type=click.IntRange(min=0))
@_wait_option
@connection_options  # fmt: skip
def decommission(broker: int, wait: bool, **connection: Any) -> None:
    """Remove a broker: reassign its replicas to the others, then unregister it.

    Run it with --wait, stop the broker, and run it once more.
    """
    with open_client(**connection) as client:
        topics = client.run(admin.list_topics(client.cluster))
        described = client.run(admin.describe_cluster(client.cluster))
        others = [each for each in described.brokers if each.id != broker]
        held = {place for place, replicas in _replicas(topics).items() if broker in replicas}
        if held:
            wanted = {
                place: replicas
                for place, replicas in _wanted(client, topics).items()
                if broker in replicas
            }
            _check_room(wanted, others, broker)
            spread = Spread(others, topics)
            places = {place: spread.without(replicas, broker) for place, replicas in wanted.items()}
            _move(client, places, wait=wait, also=held)
            if wait:
                say(f"broker {broker} holds nothing any more; stop it and run this again")
            return
        if broker in {each.id for each in described.brokers}:
            raise CliError(
                f"broker {broker} holds nothing and is still there", "stop it and run this again"
            )
        client.run(replica_admin.forget_broker(client.cluster, broker))
    say(f"broker {broker} is forgotten")


@click.command()
@click.argument("topics", nargs=-1, shell_complete=complete_topic)
@click.option("--all", "every", is_flag=True, help="Every topic that is not internal.")
@click.option("--factor", type=click.IntRange(min=1), required=True, help="How many replicas.")
@_wait_option
@connection_options  # fmt: skip
def replicate(
    topics: tuple[str, ...], every: bool, factor: int, wait: bool, **connection: Any
) -> None:
    """Change the replication factor of topics.

    \b
    tidelog topic replicate orders --factor 3
    tidelog topic replicate --all --factor 3 --wait
    """
    if every == bool(topics):
        raise CliError("say which topics", "name topics, or give --all", EXIT_USAGE)
    with open_client(**connection) as client:
        described = client.run(admin.list_topics(client.cluster))
        names = {each.name for each in described if not each.internal} if every else set(topics)
        for name in names:
            client.run(admin.describe_topic(client.cluster, name))
        brokers = client.run(admin.describe_cluster(client.cluster)).brokers
        spread = Spread(brokers, described)
        wanted = {
            place: replicas
            for place, replicas in _wanted(client, described).items()
            if place.topic in names
        }
        places = {
            place: spread.with_factor(replicas, factor)
            for place, replicas in wanted.items()
            if len(replicas) != factor
        }
        if not places and not (wait and moving(client, wanted)):
            say(f"nothing to do: every partition has {factor} replicas")
            return
        _move(client, places, wait=wait, also=wanted)


def _broker_ids(text: str) -> list[int]:
    parts = [each.strip() for each in text.split(",")]
    if not all(each.isdecimal() for each in parts):
        raise CliError(f"--to {text}: these are not ids of brokers", "as in --to 0,1,2", EXIT_USAGE)
    return [int(each) for each in parts]


def _places(client: Client, topics: Sequence[str], partition: int | None) -> list[TopicPartition]:
    found = []
    for name in topics:
        described = client.run(admin.describe_topic(client.cluster, name))
        found += [
            TopicPartition(name, number)
            for number in sorted(described.partitions)
            if partition in (None, number)
        ]
    if not found:
        hint = f"`tidelog topic describe {topics[0]}` lists them"
        raise CliError(f"there is no partition {partition}", hint, EXIT_UNKNOWN_TOPIC)
    return found


def _replicas(topics: Sequence[TopicMetadata]) -> dict[TopicPartition, list[int]]:
    return {
        TopicPartition(topic.name, number): state.replicas
        for topic in topics
        for number, state in sorted(topic.partitions.items())
    }


def _wanted(client: Client, topics: Sequence[TopicMetadata]) -> dict[TopicPartition, list[int]]:
    """Who is to hold each partition; of one that is being moved, when that is done."""
    wanted = _replicas(topics)
    for move in client.run(replica_admin.list_moves(client.cluster)):
        if move.partition in wanted:
            wanted[move.partition] = [each for each in move.replicas if each not in move.removing]
    return wanted


def _check_room(
    wanted: Mapping[TopicPartition, Sequence[int]], others: Sequence[object], broker: int
) -> None:
    """Say which topics have too many replicas for the brokers that would be left."""
    large = sorted({each.topic for each, on in wanted.items() if len(on) > len(others)})
    if large:
        raise CliError(
            f"broker {broker} cannot leave: {listed(large)} would have more replicas than there"
            f" are brokers, {len(others)}",
            f"start another broker, or keep fewer copies: tidelog topic replicate {large[0]}"
            f" --factor {max(1, len(others))}",
        )


def _move(
    client: Client,
    places: Mapping[TopicPartition, Sequence[int]],
    *,
    wait: bool,
    also: Collection[TopicPartition] = (),
) -> None:
    """Begin to move; with `wait`, return when these are done, and what else is waited for."""
    outcomes = client.run(replica_admin.reassign(client.cluster, places)) if places else {}
    _report(outcomes, "moving")
    if wait:
        awaited = {*places, *also}
        wait_until_moved(client, awaited)
        say("done")
    elif any(error is None for error in outcomes.values()):
        say("`tidelog cluster reassign` shows how far it is")


def _stop_moves(client: Client, places: Iterable[TopicPartition]) -> None:
    moving = {move.partition for move in client.run(replica_admin.list_moves(client.cluster))}
    stopped: dict[TopicPartition, None] = {place: None for place in places if place in moving}
    if not stopped:
        say("nothing of it is being moved")
        return
    _report(client.run(replica_admin.reassign(client.cluster, stopped)), "stopped the move of")


def _move_throttled(
    client: Client, places: Mapping[TopicPartition, Sequence[int]], rate: int
) -> None:
    """Move at a limited rate, and lift the limit at the end; not where the move was refused."""
    held = _replicas(client.run(admin.list_topics(client.cluster)))
    client.run(throttling.throttle(client.cluster, held, places, rate))
    say(f"copying up to {rate} bytes a second on each broker")
    try:
        _move(client, places, wait=True)
    except KeyboardInterrupt:
        say("the move goes on, and so does its limit; run the same command to wait for its end")
        raise
    except SystemExit:
        # Some were refused. Those that were not go on, without a limit.
        client.run(throttling.end_throttle(client.cluster, held, places))
        raise
    client.run(throttling.end_throttle(client.cluster, held, places))


def _report(outcomes: Outcomes, verb: str) -> None:
    refused: dict[tuple[ErrorCode, str], list[str]] = {}
    for place, error in sorted(outcomes.items()):
        if error is not None:
            name = f"{place.topic}-{place.partition}"
            refused.setdefault((error.code, str(error)), []).append(name)
    count = len(outcomes) - sum(map(len, refused.values()))
    if count or not refused:
        say(f"{verb} {count} partition{'' if count == 1 else 's'}")
    for (code, text), names in refused.items():
        say(f"refused: {listed(names)}: {text}")
        say(f"  help: {hint_for(code)}")
    if refused:
        raise SystemExit(EXIT_FAILED)


def _split(outcomes: Outcomes, code: ErrorCode) -> tuple[Outcomes, Outcomes]:
    """The outcomes with another one than this, and those with this one."""
    chosen: Outcomes = {
        place: error
        for place, error in outcomes.items()
        if error is not None and error.code is code
    }
    return {place: each for place, each in outcomes.items() if place not in chosen}, chosen


def _show_moves(client: Client, output: str) -> None:
    moves = client.run(replica_admin.list_moves(client.cluster))
    rows = [
        {
            "partition": f"{move.partition.topic}-{move.partition.partition}",
            "replicas": move.replicas,
            "adding": move.adding,
            "removing": move.removing,
        }
        for move in moves
    ]
    columns = ["partition", "replicas", "adding", "removing"]
    print_rows(rows, columns, output, "nothing is being moved")
