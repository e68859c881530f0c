"""`tidelog consume`: the records of a topic, from any place on, until told to stop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import click

from tidelog.cli.common import (
    choice_option,
    client_settings,
    connection_options,
    partitions_option,
    say,
    topic_argument,
)
from tidelog.cli.faults import EXIT_USAGE, CliError, way_past
from tidelog.cli.positions import parse_start
from tidelog.cli.values import ENCODINGS
from tidelog.client.admin import describe_topic
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.faults import UnreadableBatchError
from tidelog.client.offsets import LATEST, Start, list_offsets, log_bounds
from tidelog.client.operation import UnknownPartitionError
from tidelog.client.settings import ConsumerSettings
from tidelog.errors import TidelogError
from tidelog.model import Isolation, TopicPartition
from tidelog.protocol.batches import Record

_POLL_SECONDS = 1.0


@runtime_checkable
class Committing(Protocol):
    """A consumer that remembers for its group what was printed."""

    def commit(self) -> None: ...


Print = Callable[[TopicPartition, Record], bytes]


@click.command()
@topic_argument
@partitions_option("Only this partition. Repeatable.")
@click.option(
    "-o",
    "--offset",
    "offset",
    metavar="start|end|N|-N|@TIME",
    default=None,
    help="Start position: -N for the last N, @TIME for a date, ms or @-1h.  [default: start]",
)
@click.option("--from-beginning", is_flag=True, hidden=True)
@click.option(
    "-n",
    "--count",
    "-c",
    "--max-messages",
    type=click.IntRange(min=1),
    help="Exit after this many records.",
)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    help="As a member of this group: shares the partitions, resumes where the group stopped, and "
    "commits what was printed. -o counts where the group has no offset yet.",
)
@click.option("-e", "--exit-at-end", is_flag=True, help="Exit at the end of the log as of startup.")
@click.option(
    "-f", "--template", metavar="TEMPLATE", help=r"Output template, such as '%p:%o %k=%v\n'."
)
@choice_option("--value-as", choices=ENCODINGS, help_text="Encoding of values.")
@choice_option(
    "--isolation",
    choices=("uncommitted", "committed"),
    help_text="`committed` hides open and aborted transactions.",
)
@connection_options
def consume(topic: str, **options: Any) -> None:
    """Print the records of a topic, then follow new ones until interrupted.

    \b
    tidelog consume orders -e                      print everything, then exit
    tidelog consume orders -o end                  follow new records only
    tidelog consume orders -o -10 -n 10            the last ten of each partition
    tidelog consume orders -g billing              as a member of a group
    tidelog consume orders -o @-1h -f '%T{iso} %k %v\\n'
    tidelog consume orders -e --format json | tidelog produce copy -i json

    \b
    Template: %t topic, %p partition, %o offset, %T timestamp, %k key, %v value, %h headers,
    %K and %V lengths, with %v{hex}, {base64}, {json} and %T{iso}; \\n \\t \\0 \\xHH as in C.
    """
    settings = ConsumerSettings(
        isolation=Isolation[f"READ_{options['isolation'].upper()}"],
        out_of_range="earliest",
        client=client_settings(options["timeout_s"]),
    )
    printer = _printer(options)
    try:
        if options["group"]:
            _consume_as_member(topic, options, settings, printer)
        else:
            _consume_alone(topic, options, settings, printer)
    except UnreadableBatchError as error:
        raise CliError(str(error), way_past(error, options["group"])) from error


def _consume_alone(
    topic: str, options: dict[str, Any], settings: ConsumerSettings, printer: Print
) -> None:
    with Consumer(options["bootstrap"], settings) as consumer:
        positions = _begin(consumer, topic, options)
        ends: dict[TopicPartition, int] | None = None
        if options["exit_at_end"]:
            latest = dict.fromkeys(positions, LATEST)
            found = consumer.run(list_offsets(consumer.cluster, latest, settings.isolation))
            ends = {partition: place.offset for partition, place in found.items()}
        _stream(consumer, printer, options["count"], ends)


def _printer(options: dict[str, Any]) -> Print:
    from tidelog.cli.template import printer
    from tidelog.cli.values import record_to_json

    if options["template"]:
        return printer(options["template"])
    if options["output"] == "json":
        parsed = options["value_as"] == "json"
        return lambda partition, record: record_to_json(partition, record, parsed=parsed)
    encoding = options["value_as"]
    return printer("%v\\n" if encoding == "text" else f"%v{{{encoding}}}\\n")


def _begin(consumer: Consumer, topic: str, options: dict[str, Any]) -> dict[TopicPartition, int]:
    known = consumer.run(describe_topic(consumer.cluster, topic))
    partitions = [TopicPartition(topic, number) for number in options["chosen"] or known.partitions]
    for partition in partitions:
        if partition.partition not in known.partitions:
            raise UnknownPartitionError(partition)
    text = "start" if options["from_beginning"] else options["offset"] or "start"
    start = parse_start(text, consumer.cluster.clock.wall_ms())
    if start.kind == "offset":
        _check_bounds(consumer, partitions, start)
    return consumer.assign(dict.fromkeys(partitions, start))


def _check_bounds(consumer: Consumer, partitions: list[TopicPartition], start: Start) -> None:
    bounds = consumer.run(log_bounds(consumer.cluster, partitions))
    for partition, (low, high) in bounds.items():
        if not low <= start.value <= high:
            message = f"{partition} has no offset {start.value}"
            raise CliError(message, f"it holds {low} to {high}; -p picks another partition")


def _consume_as_member(
    topic: str, options: dict[str, Any], settings: ConsumerSettings, printer: Print
) -> None:
    from tidelog.client.group import GroupConsumer

    if options["chosen"] or options["exit_at_end"]:
        raise CliError(
            "-p and -e do not go with -g", "the group says which partitions are read", EXIT_USAGE
        )
    text = "start" if options["from_beginning"] else options["offset"] or "start"
    with GroupConsumer(options["bootstrap"], options["group"], [topic], settings) as member:
        member.start = parse_start(text, member.cluster.clock.wall_ms())
        member.run(describe_topic(member.cluster, topic))
        _stream(member, printer, options["count"], None)


def _stream(
    consumer: Consumer, printer: Print, count: int | None, ends: dict[TopicPartition, int] | None
) -> None:
    consumer.core.on_jump = _say_jump
    output = _Output(consumer, printer, count)
    trouble: TidelogError | None = None
    try:
        while not _at_end(consumer, ends):
            for partition, records in consumer.poll(_POLL_SECONDS):
                if ends is not None:
                    records = [record for record in records if record.offset < ends[partition]]
                output.print(partition, records)
                if output.full:
                    break
            if output.full:
                output.flush()
                return
            _settle(consumer, output)
            if consumer.core.trouble is not trouble:
                trouble = consumer.core.trouble
                say(f"{trouble}; trying again" if trouble else "connected again")
    except KeyboardInterrupt:
        output.flush()
        say(
            f"interrupted after {output.printed:,} {'record' if output.printed == 1 else 'records'}"
        )
        raise
    except UnreadableBatchError:
        # What came before it counts as consumed.
        _settle(consumer, output)
        raise
    finally:
        output.take_back()


class _Output:
    """Prints records, and holds that only what was printed is consumed."""

    def __init__(self, consumer: Consumer, printer: Print, count: int | None) -> None:
        self.printed = 0
        self._consumer = consumer
        self._printer = printer
        self._count = count
        # Of partitions with records that were taken and not flushed: the first one of these, and
        # the one after the last that was written.
        self._unflushed: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}

    @property
    def full(self) -> bool:
        """True once as many records were printed as were asked for."""
        return self._count is not None and self.printed >= self._count

    def print(self, partition: TopicPartition, records: list[Record]) -> None:
        """Write records, as many as are still asked for."""
        if not records:
            return
        write, render, written = sys.stdout.buffer.write, self._printer, self._written
        self._unflushed.setdefault(partition, records[0].offset)
        written[partition] = records[0].offset
        left = None if self._count is None else self._count - self.printed
        for record in records[:left]:
            rendered = render(partition, record)
            # Counted first: a reader that has the record and interrupts us hears of it.
            self.printed += 1
            write(rendered)
            written[partition] = record.offset + 1
        if left is None or len(records) <= left:
            # Records that nobody is shown, such as markers, may come after the last one.
            written[partition] = self._consumer.core.positions[partition].position

    def flush(self) -> None:
        """Hand on what was written: it counts as consumed from now on."""
        sys.stdout.buffer.flush()
        positions = self._consumer.core.positions
        self._unflushed = {
            partition: offset
            for partition, offset in self._written.items()
            if partition in positions and positions[partition].position > offset
        }
        self._written = {}

    def take_back(self) -> None:
        """Go back to what was flushed, so that a group does not commit what nobody has seen."""
        for partition, offset in self._unflushed.items():
            state = self._consumer.core.positions.get(partition)
            if state is not None and state.position > offset:
                self._consumer.core.seek(partition, offset)


def _say_jump(partition: TopicPartition, wanted: int, found: int) -> None:
    """The log does not hold the offset to read next: records went, or the topic is another one."""
    if found > wanted:
        say(f"{partition}: offsets {wanted} to {found - 1} are deleted; going on at {found}")
    else:
        say(f"{partition}: the log ends before offset {wanted}; going on at {found}")


def _settle(consumer: Consumer, output: _Output) -> None:
    output.flush()
    if isinstance(consumer, Committing):
        consumer.commit()


def _at_end(consumer: Consumer, ends: dict[TopicPartition, int] | None) -> bool:
    if ends is None:
        return False
    return all(
        consumer.core.positions[partition].position >= end for partition, end in ends.items()
    )
