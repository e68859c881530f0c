"""What a query that reads is asked to do: the connector's options, parsed once and typed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.arrow.scan import ScanPolicy
from tidelog.client.settings import ConsumerSettings
from tidelog.model import Isolation, ListedOffset, TopicPartition
from tidelog.spark.option_values import OptionError, Options
from tidelog.spark.source.limits import BatchLimits
from tidelog.spark.source.offsets import OffsetFormatError, Offsets, parse_assignment, parse_offsets
from tidelog.spark.source.planning import TaskLimits
from tidelog.spark.source.read_option_table import READ_OPTIONS


@dataclass(slots=True, frozen=True)
class Selection:
    """Which topics or partitions; one of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(slots=True, frozen=True)
class Place:
    """Where to begin or end: an end of the log, a time, offsets or times per partition, a group."""

    kind: str
    timestamp_ms: int = -1
    per_partition: Offsets = field(default_factory=dict)
    group: str = ""


@dataclass(slots=True, frozen=True)
class ReadOptions:
    """Everything that a reading query was told."""

    bootstrap_servers: str
    selection: Selection
    starting: Place
    ending: Place
    # What to do for a time behind the last record: an error, or the end of the log.
    missing_time_is_end: bool
    fail_on_data_loss: bool
    limits: BatchLimits
    tasks: TaskLimits
    group: str
    group_prefix: str
    include_headers: bool
    consumer: ConsumerSettings
    policy: ScanPolicy


def parse(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options, or an OptionError that names the first bad one."""
    options = Options(given, READ_OPTIONS)
    servers = options.bootstrap_servers()
    _refuse_misplaced(options, streaming=streaming)
    try:
        starting = _starting(options, streaming=streaming)
        ending = _ending(options)
        selection = _selection(options)
    except OffsetFormatError as error:
        raise OptionError(str(error)) from error
    return ReadOptions(
        bootstrap_servers=servers,
        selection=selection,
        starting=starting,
        ending=ending,
        missing_time_is_end=options.choice(
            "startingOffsetsByTimestampStrategy", "error", ("error", "latest")
        )
        == "latest",
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        limits=_limits(options),
        tasks=TaskLimits(
            options.integer("minPartitions", least=1),
            options.integer("maxRecordsPerPartition", least=1),
        ),
        group=options.text("kafka.group.id"),
        group_prefix=options.text("groupIdPrefix", "tidelog-spark"),
        include_headers=options.flag("includeHeaders", False),
        consumer=_consumer(options),
        policy=ScanPolicy(
            stall_timeout_ms=options.number("kafkaConsumer.pollTimeoutMs", 120_000, least=1)
        ),
    )


def _refuse_misplaced(options: Options, *, streaming: bool) -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if streaming and options.has(name):
            raise OptionError(f"option '{name}' is for batch queries; a stream has no end")


def _selection(options: Options) -> Selection:
    named = [name for name in ("assign", "subscribe", "subscribePattern") if options.has(name)]
    if len(named) != 1:
        given = f"{' and '.join(named)} are given" if named else "none is given"
        raise OptionError(
            f"give one of the options 'subscribe', 'subscribePattern' and 'assign'; {given}"
        )
    text = options.text(named[0])
    if not text:
        raise OptionError(f"option '{named[0]}' is empty")
    if named[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option 'subscribePattern' is no pattern: {error}") from error
        return Selection(pattern=text)
    if named[0] == "assign":
        partitions = tuple(parse_assignment(text))
        if not partitions:
            raise OptionError("option 'assign' names no partition")
        return Selection(partitions=partitions)
    topics = tuple(sorted({each.strip() for each in text.split(",")} - {""}))
    if not topics:
        raise OptionError("option 'subscribe' names no topic")
    return Selection(topics=topics)


def _starting(options: Options, *, streaming: bool) -> Place:
    place = _timed(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if place is not None:
        return place
    text = options.text("startingOffsets", "latest" if streaming else "earliest")
    if text.startswith("group:"):
        group = text.removeprefix("group:")
        if not group:
            raise OptionError("option 'startingOffsets' is group: without the name of a group")
        return Place("group", group=group)
    place = _ends_or_offsets("startingOffsets", text)
    backwards = ListedOffset.LATEST in place.per_partition.values()
    if not streaming and (place.kind == "latest" or backwards):
        raise OptionError("option 'startingOffsets' cannot be latest (-1) in a batch query")
    return place


def _ending(options: Options) -> Place:
    place = _timed(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if place is not None:
        return place
    place = _ends_or_offsets("endingOffsets", options.text("endingOffsets", "latest"))
    if place.kind == "earliest" or ListedOffset.EARLIEST in place.per_partition.values():
        raise OptionError("option 'endingOffsets' cannot be earliest (-2)")
    return place


def _timed(options: Options, one: str, each: str) -> Place | None:
    if options.has(one):
        return Place("time", timestamp_ms=options.number(one, 0))
    if options.has(each):
        times = parse_offsets(options.text(each))
        if any(time < 0 for time in times.values()):
            raise OptionError(f"option '{each}' has a negative time; give milliseconds since 1970")
        return Place("times", per_partition=times)
    return None


def _ends_or_offsets(name: str, text: str) -> Place:
    if text.lower() in ("earliest", "latest"):
        return Place(text.lower())
    if not text.startswith("{"):
        raise OptionError(
            f"option '{name}' is '{text}'; give earliest, latest or JSON like "
            '{"topic": {"0": 23, "1": -2}}'
        )
    offsets = parse_offsets(text)
    if any(offset < ListedOffset.EARLIEST for offset in offsets.values()):
        raise OptionError(f"option '{name}' has an offset below -2")
    return Place("offsets", per_partition=offsets)


def _limits(options: Options) -> BatchLimits:
    max_rows = options.integer("maxOffsetsPerTrigger", least=1)
    min_rows = options.integer("minOffsetsPerTrigger", least=1)
    if max_rows is not None and min_rows is not None and min_rows > max_rows:
        raise OptionError("option 'minOffsetsPerTrigger' is above 'maxOffsetsPerTrigger'")
    return BatchLimits(
        max_rows,
        options.byte_count("maxBytesPerTrigger"),
        min_rows,
        options.duration_ms("maxTriggerDelay", 15 * 60 * 1000),
    )


def _consumer(options: Options) -> ConsumerSettings:
    metadata_max_age_ms = options.number("kafka.metadata.max.age.ms", 1_000)
    client = options.client("kafka.default.api.timeout.ms", metadata_max_age_ms)
    isolation = options.choice(
        "kafka.isolation.level", "read_uncommitted", ("read_uncommitted", "read_committed")
    )
    settings = ConsumerSettings(
        max_wait_ms=options.number("kafka.fetch.max.wait.ms", 500),
        max_bytes=options.number("kafka.fetch.max.bytes", 32 << 20, least=1),
        partition_max_bytes=options.number("kafka.max.partition.fetch.bytes", 4 << 20, least=1),
        check_crcs=options.flag("kafka.check.crcs", True),
        isolation=Isolation[isolation.upper()],
        max_decompressed_bytes=options.byte_count("maxDecompressedBytes") or 256 << 20,
        client=client,
    )
    if settings.partition_max_bytes > client.max_frame_bytes // 2:
        raise OptionError("option 'kafka.max.partition.fetch.bytes' is above 128 MiB")
    return settings
