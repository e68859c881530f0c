"""`tidelog produce`: records from stdin, one per line, as JSON or by a template."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from tidelog.cli.common import choice_option, client_settings, connection_options, topic_argument
from tidelog.cli.faults import EXIT_INTERRUPTED, EXIT_USAGE, CliError, explain
from tidelog.cli.produce_report import Interrupt, Report
from tidelog.cli.values import ENCODINGS, check_json, record_from_json, to_bytes
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking_producer import Producer
from tidelog.client.operation import UnknownPartitionError
from tidelog.client.settings import ProducerSettings
from tidelog.errors import TidelogError
from tidelog.model import Codec

_READ_BYTES = 256 << 10
_ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
Parse = Callable[[bytes], ProducerRecord]


@click.command()
@topic_argument
@click.option("-v", "--value", help="Send this one value instead of reading stdin.")
@click.option("-k", "--key", help="Key of every record.")
@click.option(
    "-K", "--key-separator", metavar="TEXT", help="Split each line into key and value at this text."
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    help="Target partition; default: chosen by key.",
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Add a header. Repeatable.",
)
@choice_option(
    "-z",
    "--compress",
    "codec",
    choices=[codec.name.lower() for codec in Codec],
    help_text="Compression of the batches.",
)
@click.option("-f", "--template", metavar="TEMPLATE", help=r"Input template, such as '%k\t%v'.")
@choice_option(
    "-i",
    "--input",
    "source",
    choices=("lines", "json", "raw"),
    help_text="Lines as values, lines as records in JSON, or all of stdin as one value.",
)
@click.option("--whole", is_flag=True, help="With -i json: send each line as one value.")
@choice_option("--value-as", choices=ENCODINGS, help_text="How values are written.")
@choice_option("--key-as", choices=ENCODINGS, help_text="How keys are written.")
@click.option("--null", "null", metavar="TEXT", help="Send values equal to TEXT as null.")
@choice_option(
    "--acks",
    choices=list(_ACKS),
    default="all",
    help_text="Who must have a record before it counts as sent.",
)
@click.option(
    "--skip-lines",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Skip the first N lines of the input.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no summary.")
@connection_options
def produce(topic: str, **options: Any) -> None:
    """Send records from stdin to a topic.

    \b
    echo hello | tidelog produce greetings
    tidelog produce orders -k 42 -v '{"total": 9}' -H source=shop
    tidelog produce orders -K : -z zstd < orders.txt
    tidelog produce copy -i json < records.jsonl
    tidelog produce users -i json --whole < users.jsonl

    With -i json, each line is a record as `consume --format json` prints it: {"value": "v"},
    optionally with "key", "headers", "partition" and "timestamp". "value": null is a tombstone.
    A line without a value or with an unknown name is refused.

    With --format json, prints each record's partition and offset once it is acknowledged.

    Stops at the first line that cannot be sent, delivers the lines before it and prints the
    counts. Ctrl-C does the same; a second Ctrl-C does not wait for the broker's answers. Both print
    the command that goes on with the rest of the input.
    """
    parse = _parser(topic, options)
    settings = ProducerSettings(
        acks=_ACKS[options["acks"]],
        codec=Codec[options["codec"].upper()],
        delivery_timeout_ms=int(options["timeout_s"] * 1000),
        client=client_settings(options["timeout_s"]),
    )
    report = Report(topic, options)
    with Interrupt() as interrupt:
        fault = _send_all(_Run(options, settings, parse, report, interrupt))
        if interrupt.requested:
            report.interrupted(fault)
            click.get_current_context().exit(EXIT_INTERRUPTED)
        report.finish(fault)


@dataclass(slots=True)
class _Run:
    """One call of `produce`."""

    options: dict[str, Any]
    settings: ProducerSettings
    parse: Parse
    report: Report
    interrupt: Interrupt


def _send_all(run: _Run) -> CliError | None:
    """Send the input and wait for the answers; what ended it too early."""
    producer = Producer(run.options["bootstrap"], run.settings, run.report.completed)
    fault: CliError | None = None
    try:
        try:
            _send_lines(run, producer)
        except CliError as error:
            # What came before the line that is wrong is delivered.
            fault = error
        except KeyboardInterrupt:
            if run.interrupt.repeated:
                raise
        producer.flush()
    except TidelogError as error:
        fault = fault or explain(error)
    except KeyboardInterrupt:
        pass
    finally:
        run.report.abandoned(producer)
        producer.close()
    return fault


def _send_lines(run: _Run, producer: Producer) -> None:
    for number, line in _lines(run, producer.flush):
        place = f"line {number}: " if number else ""
        try:
            delivery = producer.send(run.parse(line))
        except CliError as error:
            raise CliError(f"{place}{error.format_message()}", error.hint, error.status) from None
        except UnknownPartitionError as error:
            cause = explain(error)
            raise CliError(f"{place}{cause.format_message()}", cause.hint, cause.status) from None
        run.report.taken(producer, number, delivery)
        if run.interrupt.requested:
            break


def _parser(topic: str, options: dict[str, Any]) -> Parse:
    if options["template"] and (options["key_separator"] or options["source"] == "json"):
        raise CliError("-f reads the whole line", "leave out -K and -i json", EXIT_USAGE)
    if options["key_separator"] and options["key"] is not None:
        raise CliError("-k and -K both name the key", "leave one out", EXIT_USAGE)
    if options["skip_lines"] and (options["value"] is not None or options["source"] == "raw"):
        raise CliError("--skip-lines is for an input of lines", "leave it out", EXIT_USAGE)
    if options["whole"] and options["source"] != "json":
        raise CliError("--whole goes with -i json", "other input is sent whole anyway", EXIT_USAGE)
    _refuse_unused(options)
    from tidelog.cli.template import parse_header, reader

    if options["template"]:
        parse = reader(options["template"], topic)
    elif options["whole"]:
        parse = _whole_parser(topic)
    elif options["source"] == "json":
        parse = _json_parser(topic)
    else:
        parse = _line_parser(topic, options)
    headers = [parse_header(entry) for entry in options["headers"]]
    key = None if options["key"] is None else to_bytes(options["key"].encode(), options["key_as"])
    partition = options["partition"]

    def complete(line: bytes) -> ProducerRecord:
        record = parse(line)
        if record.key is None:
            record.key = key
        if partition is not None:
            record.partition = partition
        if headers:
            record.headers = [*record.headers, *headers]
        return record

    return complete


def _refuse_unused(options: dict[str, Any]) -> None:
    """Refuse options that would change nothing, because the input says itself what they say."""
    if options["template"]:
        form, hint = "-f", "the template says how each field is written, as in %v{hex}"
    elif options["source"] == "json":
        form, hint = "-i json", "each line says it itself: value_base64 for bytes, null for null"
    else:
        return
    for name, default in (("value_as", "text"), ("null", None), ("key_separator", None)):
        if options[name] != default:
            raise CliError(f"--{name.replace('_', '-')} has no use with {form}", hint, EXIT_USAGE)
    if options["key_as"] != "text" and options["key"] is None:
        raise CliError(f"--key-as has no use with {form}", hint, EXIT_USAGE)


def _json_parser(topic: str) -> Parse:
    return lambda line: record_from_json(line, topic)


def _whole_parser(topic: str) -> Parse:
    return lambda line: ProducerRecord(topic, check_json(line))


def _line_parser(topic: str, options: dict[str, Any]) -> Parse:
    separator = (options["key_separator"] or "").encode().decode("unicode_escape").encode()
    null = None if options["null"] is None else options["null"].encode()
    key_as, value_as = options["key_as"], options["value_as"]

    def parse(line: bytes) -> ProducerRecord:
        key: bytes | None = None
        if separator:
            key, found, line = line.partition(separator)
            if not found:
                shown = key[:60].decode(errors="replace")
                hint = f"every line needs a '{separator.decode()}'"
                raise CliError(f"no key in '{shown}'", hint)
            key = to_bytes(key, key_as)
        value = None if null is not None and line == null else to_bytes(line, value_as)
        return ProducerRecord(topic, value, key)

    return parse


def _lines(run: _Run, when_idle: Callable[[], None]) -> Iterator[tuple[int, bytes]]:
    """What to send, each with the number of its line; 0 where it is not one of many."""
    options = run.options
    if options["value"] is not None:
        yield 0, options["value"].encode()
    elif options["source"] == "raw":
        with run.interrupt.while_waiting():
            data = sys.stdin.buffer.read()
        yield 0, data
    else:
        for number, line in enumerate(read_lines(when_idle, run.interrupt), 1):
            is_sent = bool(line.strip()) or options["source"] != "json"
            if is_sent and number > options["skip_lines"]:
                yield number, line


def read_lines(when_idle: Callable[[], None], interrupt: Interrupt) -> Iterator[bytes]:
    """The lines of stdin without their ends; `when_idle` runs before a wait for more.

    So lines that trickle in are sent as they come, and those of a file in full batches.
    """
    descriptor = sys.stdin.fileno()
    rest = b""
    while True:
        if not _at_hand(descriptor):
            when_idle()
        with interrupt.while_waiting():
            data = os.read(descriptor, _READ_BYTES)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


def _at_hand(descriptor: int) -> bool:
    """Whether input can be read without waiting; where nobody can tell (Windows), it is not."""
    try:
        return bool(select.select([descriptor], [], [], 0)[0])
    except OSError:
        return False
