"""`tidelog txn`: list, describe, find-hanging, abort."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from tidelog.cli.common import (
    complete_topic,
    connection_options,
    listed,
    open_client,
    print_json,
    print_rows,
    say,
)
from tidelog.cli.faults import EXIT_UNKNOWN_TOPIC, EXIT_USAGE, CliError
from tidelog.client.admin import list_topics
from tidelog.client.blocking import Client
from tidelog.client.operation import UnknownPartitionError, topic_metadata
from tidelog.client.settings import TransactionSettings
from tidelog.client.transaction_admin import (
    ActiveProducer,
    TransactionFilter,
    abort_hanging,
    coordinated,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from tidelog.client.transaction_view import COMMITTED_STATES, DescribedTransaction
from tidelog.client.transactions import init_transactional_id
from tidelog.durations import parse_duration_ms
from tidelog.model import TopicPartition

_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)
# Only for whoever comes next under the id, and that one names its own.
_TIMEOUT_MS: Final = 1_000


class Duration(click.ParamType[int]):
    """30s, 15m, 1h, as milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = parse_duration_ms(str(value))
        if found is None:
            self.fail(f"'{value}' is no duration; give 30s, 15m or 1h", param, ctx)
        return found


@click.group()
def txn() -> None:
    """Inspect transactions and abort hanging ones."""


@txn.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only those in this state; repeatable.",
)
@click.option(
    "--longer-than", type=Duration(), metavar="TIME", help="Only those open for longer: 30s, 15m."
)
@click.option("--like", metavar="REGEX", help="Only ids that match this expression as a whole.")
@connection_options
def list_(
    states: tuple[str, ...], longer_than: int | None, like: str | None, **connection: Any
) -> None:
    """List transactional ids and their state.

    \b
    tidelog txn list --state Ongoing --longer-than 5m
    tidelog txn list --like 'billing-.*'
    """
    wanted = TransactionFilter(
        states, open_for_ms=-1 if longer_than is None else longer_than, pattern=like
    )
    with open_client(**connection) as client:
        found = client.run(list_transactions(client.cluster, wanted))
    rows = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "coordinator": each.coordinator,
        }
        for each in found
    ]
    columns = ["transactional_id", "state", "producer_id", "coordinator"]
    print_rows(rows, columns, connection["output"], "no transactional ids")


@txn.command()
@click.argument("names", metavar="ID...", nargs=-1, required=True)
@connection_options
def describe(names: tuple[str, ...], **connection: Any) -> None:
    """Show transactions: start, timeout, partitions."""
    with open_client(**connection) as client:
        known = client.run(describe_transactions(client.cluster, names))
    for name in names:
        if name not in known:
            raise _unknown(name)
    now_ms = time.time() * 1000
    entries = [describe_entry(known[name], now_ms) for name in names]
    if connection["output"] == "json":
        print_json(entries)
        return
    for index, entry in enumerate(entries):
        if index:
            click.echo()
        for key, value in entry.items():
            shown = ",".join(value) if isinstance(value, list) else value
            click.echo(f"{key}: {'-' if shown in (None, '') else shown}")


def describe_entry(found: DescribedTransaction, now_ms: float) -> dict[str, Any]:
    """What is shown of a transaction; times that do not apply are None."""
    started = found.started_ms if found.is_open else None
    ends_in = found.ends_in_ms(now_ms)
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.producer_epoch,
        "coordinator": found.coordinator,
        "timeout_ms": found.timeout_ms if found.has_timeout else None,
        "started": None if started is None else shown_time(started),
        "open_seconds": None if started is None else age_seconds(started, now_ms),
        "times_out_in_seconds": None if ends_in is None else round(ends_in / 1000, 1),
        "partitions": [str(tp) for tp in sorted(found.partitions)],
    }


def age_seconds(wall_ms: int, now_ms: float) -> float:
    """How long ago that was; not in the future, where the broker's clock is ahead of ours."""
    return round(max(0.0, now_ms - wall_ms) / 1000, 1)


def shown_time(wall_ms: int) -> str:
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@txn.command("find-hanging")
@click.argument("topics", nargs=-1, shell_complete=complete_topic)
@click.option(
    "--longer-than",
    type=Duration(),
    default="15m",
    show_default=True,
    metavar="TIME",
    help="Only those whose last record is older; time-outs should be shorter than this.",
)
@connection_options
def find_hanging(topics: tuple[str, ...], longer_than: int, **connection: Any) -> None:
    """Find transactions that no coordinator will end.

    They are looked for in the topics named, or in all. Readers of committed records wait for them
    for ever; `tidelog txn abort` ends one.
    """
    with open_client(**connection) as client:
        partitions = _led_partitions(client, topics)
        active = client.run(describe_producers(client.cluster, partitions)) if partitions else []
        latest_ms = time.time() * 1000 - longer_than
        suspects = [
            each
            for each in active
            if each.transaction_start is not None and each.last_timestamp_ms <= latest_ms
        ]
        fine = client.run(coordinated(client.cluster, suspects))
    rows = [_hanging_row(each) for each in suspects if each not in fine]
    columns = ["topic", "partition", "start_offset", "producer_id", "producer_epoch", "last_record"]
    print_rows(rows, columns, connection["output"], "no hanging transactions")


def _led_partitions(client: Client, topics: tuple[str, ...]) -> list[TopicPartition]:
    """Those that can be asked; the others are said."""
    if topics:
        client.run(topic_metadata(client.cluster, topics))
        known = [client.cluster.topics[topic] for topic in topics]
    else:
        known = client.run(list_topics(client.cluster))
    every = [
        (TopicPartition(topic.name, state.partition), state.leader)
        for topic in known
        for state in topic.partitions.values()
    ]
    lost = [str(tp) for tp, leader in every if leader < 0]
    if lost:
        say(f"not looked at, since nobody leads them: {listed(lost)}")
    return [tp for tp, leader in every if leader >= 0]


def _hanging_row(each: ActiveProducer) -> dict[str, object]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "start_offset": each.transaction_start,
        "producer_id": each.producer.producer_id,
        "producer_epoch": each.producer.producer_epoch,
        "coordinator_epoch": each.coordinator_epoch,
        "last_record": shown_time(each.last_timestamp_ms),
    }


@txn.command()
@click.argument("names", metavar="[ID...]", nargs=-1)
@click.option("--topic", shell_complete=complete_topic, help="The topic where one hangs.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="The partition where it hangs.")
@click.option("--start-offset", type=click.IntRange(min=0), help="Where it begins.")
@click.option("--force", is_flag=True, help="Abort also what waits for somebody's decision.")
@connection_options
def abort(
    names: tuple[str, ...],
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    **options: Any,
) -> None:
    """Abort transactions, by id or by partition.

    By id, what is open is aborted in all its partitions, and its producer is fenced: it cannot
    write any more, and has to start anew. One that hangs is named by the partition and the offset
    that `tidelog txn find-hanging` shows.

    \b
    tidelog txn abort billing-1
    tidelog txn abort --topic orders -p 2 --start-offset 1041
    """
    place = (topic, partition, start_offset)
    if bool(names) == any(each is not None for each in place) or (not names and None in place):
        raise CliError(
            "say what to abort",
            "give transactional ids, or all of --topic, -p and --start-offset",
            EXIT_USAGE,
        )
    force = options.pop("force")
    is_text = options["output"] == "text"
    aborted: list[dict[str, object]] = []
    with open_client(**options) as client:
        for name in names:
            aborted.append({"transactional_id": _abort_id(client, name, force=force)})
            if is_text:
                say(f"{name} aborted")
        if topic is not None and partition is not None and start_offset is not None:
            aborted.append(_abort_at(client, TopicPartition(topic, partition), start_offset))
            if is_text:
                say(f"the transaction at {topic}-{partition}, offset {start_offset}, aborted")
    if not is_text:
        print_json(aborted)


def _abort_id(client: Client, name: str, *, force: bool) -> str:
    found = client.run(describe_transactions(client.cluster, [name])).get(name)
    if found is None:
        raise _unknown(name)
    if found.state != "Ongoing":
        decided = "it is committed" if found.state in COMMITTED_STATES else "it is not open"
        raise CliError(
            f"'{name}' has no transaction to abort: {decided} ({found.state})",
            f"`tidelog txn describe {name}` shows it",
        )
    if not found.has_timeout and not force:
        raise CliError(
            f"'{name}' waits for somebody's decision (two-phase): aborted now, a part of what was"
            " decided may be missing",
            "start what decides about it again; --force aborts it nevertheless",
        )
    client.run(init_transactional_id(client.cluster, TransactionSettings(name, _TIMEOUT_MS)))
    return name


def _abort_at(client: Client, tp: TopicPartition, start_offset: int) -> dict[str, object]:
    client.run(topic_metadata(client.cluster, [tp.topic]))
    if tp.partition not in client.cluster.topics[tp.topic].partitions:
        raise UnknownPartitionError(tp)
    active = client.run(describe_producers(client.cluster, [tp]))
    starts = [each for each in active if each.transaction_start is not None]
    chosen = [each for each in starts if each.transaction_start == start_offset]
    if not chosen:
        places = listed([str(each.transaction_start) for each in starts]) or "none"
        raise CliError(
            f"no transaction of {tp} begins at offset {start_offset}",
            f"open ones begin at: {places}",
        )
    [hanging] = chosen
    known = client.run(coordinated(client.cluster, [hanging])).get(hanging)
    if known is not None:
        raise CliError(
            f"that is the transaction of '{known.transactional_id}', which its coordinator will end"
            f" ({known.state})",
            f"`tidelog txn abort {known.transactional_id}` has it aborted in all its partitions",
        )
    client.run(abort_hanging(client.cluster, hanging))
    return _hanging_row(hanging)


def _unknown(name: str) -> CliError:
    return CliError(
        f"transactional id '{name}' does not exist", "`tidelog txn list` shows them",
        EXIT_UNKNOWN_TOPIC,
    )  # fmt: skip
