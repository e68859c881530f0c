"""`tidelog why TOPIC -p N --stable`: what readers of committed records wait for."""

from __future__ import annotations

import time
from typing import Any

import click

from tidelog.cli.common import connection_options, open_client, print_json, topic_argument
from tidelog.cli.faults import EXIT_USAGE, CliError
from tidelog.cli.txn import age_seconds, shown_time
from tidelog.client.transaction_admin import StableOffset, stable_offset
from tidelog.client.transaction_view import COMMITTED_STATES
from tidelog.model import TopicPartition


@click.command()
@topic_argument
@click.option("-p", "--partition", type=click.IntRange(min=0), required=True)
@click.option(
    "--stable",
    is_flag=True,
    help="Show what holds back the last stable offset, where read_committed consumers stop.",
)
@connection_options
def why(topic: str, partition: int, stable: bool, **connection: Any) -> None:
    """Explain why consumers are stuck in a partition, and what will unblock them.

    \b
    tidelog why orders -p 2 --stable
    """
    if not stable:
        raise CliError("say what to explain", "give --stable", EXIT_USAGE)
    with open_client(**connection) as client:
        found = client.run(stable_offset(client.cluster, TopicPartition(topic, partition)))
    now_ms = time.time() * 1000
    if connection["output"] == "json":
        print_json(entry(found, now_ms))
        return
    for line in explained(found, now_ms):
        click.echo(line)


def entry(found: StableOffset, now_ms: float) -> dict[str, Any]:
    """The same for a program: `held_by` is None where nothing holds it, or nobody is known."""
    holder, transaction = found.holder, found.transaction
    held_by = None
    if holder is not None:
        since_ms = found.since_ms
        held_by = {
            "transactional_id": None if transaction is None else transaction.transactional_id,
            "state": None if transaction is None else transaction.state,
            "coordinator": None if transaction is None else transaction.coordinator,
            "producer_id": holder.producer.producer_id,
            "producer_epoch": holder.producer.producer_epoch,
            "since": shown_time(since_ms),
            "seconds": age_seconds(since_ms, now_ms),
            "hangs": transaction is None,
        }
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "last_stable_offset": found.offset,
        "high_watermark": found.high_watermark,
        "held_by": held_by,
        "others_open": found.others_open,
        "ends": what_ends(found, now_ms),
    }


def explained(found: StableOffset, now_ms: float) -> list[str]:
    """Sentences for a person."""
    tp, behind = found.partition, found.high_watermark - found.offset
    if not behind:
        return [f"{tp}: nothing holds it; all records up to offset {found.offset} are readable"]
    lines = [
        f"{tp}: readers of committed records wait at offset {found.offset}, {behind} before the end"
    ]
    holder, transaction = found.holder, found.transaction
    if holder is not None:
        producer = f"producer {holder.producer.producer_id}, epoch {holder.producer.producer_epoch}"
        who = f"a transaction that no coordinator knows of ({producer})"
        since = "last record"
        if transaction is not None:
            who = f"'{transaction.transactional_id}' ({producer}), {transaction.state}"
            who += f", coordinated by broker {transaction.coordinator}"
            since = "open since"
        seconds = age_seconds(found.since_ms, now_ms)
        lines.append(f"held by: {who}")
        lines.append(f"{since}: {shown_time(found.since_ms)}, {seconds:.1f} s ago")
    lines.append(f"ends: {what_ends(found, now_ms)}")
    if found.others_open:
        lines.append(f"behind it: {found.others_open} more open in this partition")
    return lines


def what_ends(found: StableOffset, now_ms: float) -> str | None:
    """What will let readers go on; None where they are not held."""
    tp, transaction = found.partition, found.transaction
    if found.offset >= found.high_watermark:
        return None
    if found.holder is None:
        return "its end is written already, and counts once enough replicas have it: look again"
    if transaction is None:
        return (
            "nothing does, it hangs; `tidelog txn abort "
            f"--topic {tp.topic} -p {tp.partition} --start-offset {found.offset}` ends it"
        )
    name = transaction.transactional_id
    if transaction.state != "Ongoing":
        decision = "committed" if transaction.state in COMMITTED_STATES else "aborted"
        return (
            f"it is {decision} already, and its coordinator has yet to write that here: it waits "
            "for partitions without leader or with too few replicas (`tidelog cluster health`)"
        )
    left_ms = transaction.ends_in_ms(now_ms)
    if left_ms is None:
        return (
            "whoever decides about it (two-phase): no time-out does; start that program again, or "
            f"`tidelog txn abort {name} --force`"
        )
    return (
        f"its producer commits or aborts it; else its time-out does in {left_ms / 1000:.1f} s; "
        f"`tidelog txn abort {name}` does so now"
    )
