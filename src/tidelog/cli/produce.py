"""`tidelog produce`: records from stdin, one per line, as JSON or by a template."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from tidelog.cli.common import client_settings, connection_options, say, topic_argument
from tidelog.cli.faults import EXIT_USAGE, CliError, explain
from tidelog.cli.values import ENCODINGS, record_from_json, to_bytes
from tidelog.client.batching import Batch, ProducerRecord
from tidelog.client.blocking_producer import Producer
from tidelog.client.settings import ProducerSettings
from tidelog.model import Codec

_READ_BYTES = 256 << 10
_PROGRESS_SECONDS = 0.2
_ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
Parse = Callable[[bytes], ProducerRecord]


@click.command()
@topic_argument
@click.option("-v", "--value", help="Send this one value instead of reading stdin.")
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Each line is KEY TEXT VALUE.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Else the key decides.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option(
    "-z",
    "--compress",
    "codec",
    type=click.Choice([c.name.lower() for c in Codec]),
    default="none",
    show_default=True,
    help="Compression of the batches.",
)
@click.option("-f", "--template", metavar="TEMPLATE", help=r"How a line is read, such as '%k\t%v'.")
@click.option(
    "-i",
    "--input",
    "source",
    type=click.Choice(["lines", "json", "raw"]),
    default="lines",
    show_default=True,
    help="Lines, JSON objects by line, or all of stdin as one record.",
)
@click.option(
    "--value-as",
    type=click.Choice(ENCODINGS),
    default="text",
    show_default=True,
    help="How values are written.",
)
@click.option(
    "--key-as",
    type=click.Choice(ENCODINGS),
    default="text",
    show_default=True,
    help="How keys are written.",
)
@click.option("--null", "null", metavar="TEXT", help="A value that reads so is sent as null.")
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="Who must have a record before it counts as sent.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary.")
@connection_options
def produce(topic: str, **options: Any) -> None:
    r"""Send records from stdin to a topic.

    \b
    echo hello | tidelog produce greetings
    tidelog produce orders -k 42 -v '{"total": 9}' -H source=shop
    tidelog produce orders -K : -z zstd < orders.txt
    tidelog produce copy -i json < records.jsonl

    With --format json each record's partition and offset are printed once it is acknowledged.
    """
    parse = _parser(topic, options)
    settings = ProducerSettings(
        acks=_ACKS[options["acks"]],
        codec=Codec[options["codec"].upper()],
        delivery_timeout_ms=int(options["timeout_s"] * 1000),
        client=client_settings(options["timeout_s"]),
    )
    progress = _Progress(options["output"] == "json", options["quiet"])
    with Producer(options["bootstrap"], settings, progress.completed) as producer:
        for line in _lines(options, producer.flush):
            producer.send(parse(line))
            progress.sent(producer)
        producer.flush()
    progress.finish(topic)


def _parser(topic: str, options: dict[str, Any]) -> Parse:
    if options["template"] and (options["key_separator"] or options["source"] == "json"):
        raise CliError("-f reads the whole line", "leave out -K and -i json", EXIT_USAGE)
    if options["key_separator"] and options["key"] is not None:
        raise CliError("-k and -K both name the key", "leave one out", EXIT_USAGE)
    from tidelog.cli.template import parse_header, reader

    if options["template"]:
        parse = reader(options["template"], topic)
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


def _json_parser(topic: str) -> Parse:
    return lambda line: record_from_json(line, topic)


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


def _lines(options: dict[str, Any], when_idle: Callable[[], None]) -> Iterator[bytes]:
    if options["value"] is not None:
        yield options["value"].encode()
    elif options["source"] == "raw":
        yield sys.stdin.buffer.read()
    else:
        for line in read_lines(when_idle):
            if line or options["source"] != "json":
                yield line


def read_lines(when_idle: Callable[[], None]) -> Iterator[bytes]:
    """The lines of stdin without their ends; `when_idle` runs before a wait for more.

    So lines that trickle in are sent as they come, and those of a file in full batches.
    """
    descriptor = sys.stdin.fileno()
    rest = b""
    while True:
        if not _at_hand(descriptor):
            when_idle()
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


class _Progress:
    """Counts what was sent, and tells: a moving line on a terminal, a summary at the end."""

    def __init__(self, json_lines: bool, quiet: bool) -> None:
        self._json_lines = json_lines
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not sys.stdin.isatty() and not quiet
        self._sent = 0
        self._delivered = 0
        self._bytes = 0
        self._failed = 0
        self._error: Batch | None = None
        self._began = -1.0
        self._shown = 0.0

    def sent(self, producer: Producer) -> None:
        self._sent += 1
        if self._live:
            now = producer.cluster.clock.monotonic()
            if self._began < 0:
                self._began = now
            if now - self._shown >= _PROGRESS_SECONDS:
                self._shown = now
                rate = self._delivered / max(now - self._began, 0.001)
                text = f"{self._delivered:,} records, {self._bytes / 1e6:,.1f} MB, {rate:,.0f}/s"
                sys.stderr.write(f"\r\x1b[K{text}")
                sys.stderr.flush()

    def completed(self, batches: list[Batch]) -> None:
        for batch in batches:
            if batch.error is not None:
                self._failed += len(batch.records)
                self._error = self._error or batch
                continue
            self._delivered += len(batch.records)
            self._bytes += batch.size_bytes
            if self._json_lines:
                self._print(batch)

    def _print(self, batch: Batch) -> None:
        import json

        for index, record in enumerate(batch.records):
            entry = {
                "topic": batch.partition.topic,
                "partition": batch.partition.partition,
                "offset": batch.base_offset + index if batch.base_offset >= 0 else None,
                "timestamp": record.timestamp if batch.append_time_ms < 0 else batch.append_time_ms,
            }
            sys.stdout.write(json.dumps(entry, separators=(",", ":")) + "\n")
        sys.stdout.flush()

    def finish(self, topic: str) -> None:
        """The summary; CliError where records were not delivered."""
        if self._live:
            sys.stderr.write("\r\x1b[K")
        if not self._quiet:
            noun = "record" if self._delivered == 1 else "records"
            say(f"{self._delivered:,} {noun} sent to {topic}")
        if self._error is not None and self._error.error is not None:
            cause = explain(self._error.error)
            message = f"{self._failed:,} not delivered: {cause.format_message()}"
            raise CliError(message, cause.hint, cause.status)
