"""The options of a write: those of Spark's Kafka connector, each same, different or refused.

`WRITE_OPTIONS` is the whole table; `parse_write_options` takes what it says and nothing else, so an
option that nobody knows is an error that names it. Names are compared without case, as Spark does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.arrow.writer import WriterSettings
from tidelog.client.settings import ClientSettings, ProducerSettings
from tidelog.model import Codec
from tidelog.spark.option_row import CLIENT_ROWS, NO_EFFECT, SECURITY_ROWS, OptionRow
from tidelog.spark.option_values import OptionError, Options

BATCH_BYTES: Final = 512 << 10
TIMEOUT_MS: Final = 900_000
_NAME_LENGTH_MAX: Final = 200

WRITE_OPTIONS: Final = (
    OptionRow(
        "kafka.bootstrap.servers",
        "differs",
        "bootstrap brokers, HOST:PORT, separated by commas; defaults to TIDELOG_BOOTSTRAP_SERVERS "
        "in the driver's environment",
    ),
    OptionRow("topic", "same", "the topic of every row; overrides a column of that name"),
    OptionRow("includeHeaders", "same", "for reading; a column 'headers' is always written"),
    OptionRow("checkpointLocation", "same", "Spark's own, for streaming queries"),
    OptionRow("asyncProgressTrackingEnabled", "same", "Spark's own, for streaming queries"),
    OptionRow(
        "asyncProgressTrackingCheckpointIntervalMs", "same", "Spark's own, for streaming queries"
    ),
    OptionRow("queryName", "same", "Spark's own, the name of a streaming query"),
    OptionRow(
        "exactlyOnce",
        "ours",
        "true: readers with read_committed see every row once, whatever is rerun; see"
        " spark-sink.md",
    ),
    OptionRow(
        "txnAppId",
        "ours",
        "with exactlyOnce: identifies the writer. Required for a batch write; a stream uses the"
        " id of its query, and needs this only if its checkpoint is not on the driver's disk",
    ),
    OptionRow(
        "txnVersion",
        "ours",
        "with exactlyOnce, for a batch write: a number that grows with every write; a number that"
        " txnAppId has already written is not written again",
    ),
    OptionRow(
        "compression",
        "ours",
        "a short name of kafka.compression.type",
    ),
    OptionRow(
        "path", "refused", "a topic is not a path: call save() without one and set the topic"
    ),
    OptionRow("kafka.acks", "same", "all (the default), 1 or 0; less than all is not idempotent"),
    OptionRow(
        "kafka.enable.idempotence",
        "same",
        "true unless acks says otherwise: within a task attempt nothing is stored twice",
    ),
    OptionRow("kafka.compression.type", "same", "none (the default), gzip, snappy, lz4 or zstd"),
    OptionRow("kafka.compression.gzip.level", "same", "1 to 9, or -1 for the codec's own"),
    OptionRow("kafka.compression.lz4.level", "same", "1 to 17; 9 is the fast mode, as in Java"),
    OptionRow("kafka.compression.zstd.level", "same", "-131072 to 22"),
    OptionRow(
        "kafka.batch.size",
        "differs",
        f"bytes of a batch before compression; {BATCH_BYTES} by default instead of 16384",
    ),
    OptionRow(
        "kafka.linger.ms",
        "differs",
        NO_EFFECT + "batches are sent when they are full or the task has no more rows",
    ),
    OptionRow(
        "kafka.max.request.size",
        "differs",
        "largest row; no limit by default instead of 1048576: the broker decides",
    ),
    OptionRow("kafka.buffer.memory", "same", "bytes that a task keeps unacknowledged"),
    OptionRow(
        "kafka.max.in.flight.requests.per.connection",
        "same",
        "requests in flight to one broker, at most 5 if writes are idempotent",
    ),
    OptionRow(
        "kafka.delivery.timeout.ms", "same", "how long to retry a batch; then the task fails"
    ),
    OptionRow("kafka.request.timeout.ms", "same", "how long to wait for an answer"),
    OptionRow("kafka.max.block.ms", "same", "how long to wait for metadata and a producer id"),
    OptionRow("kafka.metadata.max.age.ms", "same", "how often metadata is refreshed"),
    OptionRow("kafka.retry.backoff.ms", "same", "the first pause before a batch is sent again"),
    OptionRow("kafka.retry.backoff.max.ms", "same", "the longest of those pauses"),
    OptionRow("kafka.socket.connection.setup.timeout.ms", "same", "how long connecting may take"),
    OptionRow("kafka.client.id", "same", "the name that brokers log; tidelog-spark by default"),
    OptionRow(
        "kafka.retries",
        "differs",
        "any number but 0 means: until kafka.delivery.timeout.ms is over; 0 is refused",
    ),
    OptionRow(
        "kafka.transaction.timeout.ms",
        "differs",
        f"with exactlyOnce, on Apache Kafka: twice the time that a batch may take; {TIMEOUT_MS} by "
        "default. On Tidelog no timeout ends a batch",
    ),
    *SECURITY_ROWS,
    *(
        OptionRow(f"kafka.{name}", "differs", NO_EFFECT + reason)
        for name, reason in (
            ("client.dns.lookup", "every address of a name is tried"),
            ("connections.max.idle.ms", "connections live as long as the task"),
            ("metadata.max.idle.ms", "metadata lives as long as the task"),
            ("reconnect.backoff.ms", "kafka.retry.backoff.ms paces connecting too"),
            ("reconnect.backoff.max.ms", "kafka.retry.backoff.max.ms paces connecting too"),
            ("partitioner.adaptive.partitioning.enable", "partitions are not weighed by queue"),
            ("partitioner.availability.timeout.ms", "partitions without a leader are avoided"),
        )
    ),
    *CLIENT_ROWS,
    *(
        OptionRow(f"kafka.{name}", "refused", reason)
        for name, reason in (
            ("key.serializer", "keys are string or binary columns, as in the connector"),
            ("value.serializer", "values are string or binary columns, as in the connector"),
            ("partitioner.class", "Java's; set a column 'partition' instead"),
            ("partitioner.ignore.keys", "leave the column 'key' out, or set 'partition'"),
            ("interceptor.classes", "Java's; change the rows in Spark instead"),
            ("config.providers", "Java's; read secrets before the options are set"),
            ("transactional.id", "each attempt of a task has its own; set exactlyOnce=true"),
            ("transaction.two.phase.commit.enable", "exactlyOnce uses it if brokers offer it"),
            ("security.providers", "Java's, for TLS and SASL"),
        )
    ),
)

_CODECS: Final = {codec.name.lower(): codec for codec in Codec}
_LEVELS: Final = {
    Codec.GZIP: ("kafka.compression.gzip.level", range(-1, 10)),
    Codec.LZ4: ("kafka.compression.lz4.level", range(1, 18)),
    Codec.ZSTD: ("kafka.compression.zstd.level", range(-131072, 23)),
}
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_IN_FLIGHT_MAX: Final = 5


@dataclass(slots=True, frozen=True)
class OnceOptions:
    """How a write is exactly once: who writes (`app_id`), and as which version of its output."""

    app_id: str
    checkpoint: str
    version: int | None
    timeout_ms: int


def parse_once_options(given: Mapping[str, str], *, streaming: bool) -> OnceOptions | None:
    """What the options say about writing exactly once; None where nothing."""
    options = Options(given, WRITE_OPTIONS)
    app_id, checkpoint = options.text("txnAppId"), options.text("checkpointLocation")
    version = options.integer("txnVersion")
    if not options.flag("exactlyOnce", False):
        if options.has("txnAppId") or version is not None:
            raise OptionError("options 'txnAppId' and 'txnVersion' need exactlyOnce=true")
        return None
    if options.text("kafka.acks", "all").lower() not in ("all", "-1"):
        raise OptionError("option 'exactlyOnce' is true, which needs kafka.acks=all")
    if not options.flag("kafka.enable.idempotence", True):
        raise OptionError("option 'exactlyOnce' is true, which needs kafka.enable.idempotence=true")
    if options.flag("asyncProgressTrackingEnabled", False):
        raise OptionError(
            "option 'exactlyOnce' is true, which needs asyncProgressTrackingEnabled=false: with it"
            " Spark does not know which batches it has written"
        )
    if len(app_id) > _NAME_LENGTH_MAX:
        raise OptionError(f"option 'txnAppId' is longer than {_NAME_LENGTH_MAX} characters")
    if streaming and version is not None:
        raise OptionError("option 'txnVersion' is for batch writes; a stream numbers its batches")
    if not streaming and (not app_id or version is None):
        raise OptionError(
            "option 'exactlyOnce' of a batch write needs txnAppId (who writes) and txnVersion (a"
            " number that grows from write to write): by them a repeated write is known"
        )
    timeout_ms = options.number("kafka.transaction.timeout.ms", TIMEOUT_MS, least=1)
    return OnceOptions(app_id, checkpoint, version, timeout_ms)


def parse_write_options(given: Mapping[str, str]) -> WriterSettings:
    """The options, or an OptionError that names the first bad one."""
    options = Options(given, WRITE_OPTIONS)
    servers = options.bootstrap_servers()
    if options.has("topic") and not options.text("topic"):
        raise OptionError("option 'topic' is empty")
    record_bytes_max = options.integer("kafka.max.request.size", least=1)
    producer = _producer(options)
    if record_bytes_max is not None:
        producer.batch_bytes = min(producer.batch_bytes, record_bytes_max)
    return WriterSettings(servers, options.text("topic") or None, record_bytes_max, producer)


def _producer(options: Options) -> ProducerSettings:
    acks = _ACKS[options.choice("kafka.acks", "all", _ACKS)]
    idempotent = options.flag("kafka.enable.idempotence", acks == -1)
    in_flight = options.number("kafka.max.in.flight.requests.per.connection", 5, least=1)
    if idempotent and acks != -1:
        raise OptionError("option 'kafka.enable.idempotence' is true, which needs kafka.acks=all")
    if idempotent and in_flight > _IN_FLIGHT_MAX:
        raise OptionError(
            f"option 'kafka.max.in.flight.requests.per.connection' is {in_flight}; give at most"
            f" {_IN_FLIGHT_MAX}, or kafka.enable.idempotence=false"
        )
    options.number("kafka.retries", 1, least=1)
    codec, level = _compression(options)
    metadata_max_age_ms = options.number(
        "kafka.metadata.max.age.ms", ClientSettings().metadata_max_age_ms, least=1
    )
    return ProducerSettings(
        acks=acks,
        idempotent=idempotent,
        linger_ms=0,
        batch_bytes=options.number("kafka.batch.size", BATCH_BYTES, least=1),
        buffer_bytes=options.number("kafka.buffer.memory", 32 << 20, least=1),
        codec=codec,
        compression_level=level,
        in_flight_max=in_flight,
        delivery_timeout_ms=options.number("kafka.delivery.timeout.ms", 120_000, least=1),
        client=options.client("kafka.max.block.ms", metadata_max_age_ms),
    )


def _compression(options: Options) -> tuple[Codec, int | None]:
    name = "compression" if options.has("compression") else "kafka.compression.type"
    if options.has("compression") and options.has("kafka.compression.type"):
        raise OptionError("give one of the options 'compression' and 'kafka.compression.type'")
    codec = _CODECS[options.choice(name, "none", _CODECS)]
    if codec not in _LEVELS:
        return codec, None
    name, levels = _LEVELS[codec]
    level = options.integer(name, least=levels.start)
    if level is not None and level not in levels:
        raise OptionError(f"option '{name}' is {level}; give at most {levels.stop - 1}")
    # These two are the defaults of Java's client, which mean the codec's own there as well.
    usual = {Codec.GZIP: -1, Codec.LZ4: 9}
    return codec, None if level == usual.get(codec) else level
