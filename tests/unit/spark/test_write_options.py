"""Every option of the connector is the same, different or refused, and nothing else is taken."""

from __future__ import annotations

import pytest

from tidelog.arrow.writer import WriterSettings
from tidelog.model import Codec
from tidelog.spark.option_values import OptionError
from tidelog.spark.sink.write_options import (
    BATCH_BYTES,
    WRITE_OPTIONS,
    OnceOptions,
    parse_once_options,
    parse_write_options,
)

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}

# A value that each option takes, where a number will not do.
VALUES = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.compression.type": "zstd",
    "compression": "gzip",
    "kafka.security.protocol": "PLAINTEXT",
    "includeHeaders": "true",
}

# The names in `ProducerConfig` of Kafka's Java client 3.9 and 4.3, but for sasl.* and ssl.*.
PRODUCER_CONFIG = """
acks auto.include.jmx.reporter batch.size bootstrap.servers buffer.memory client.dns.lookup
client.id compression.gzip.level compression.lz4.level compression.type compression.zstd.level
config.providers connections.max.idle.ms delivery.timeout.ms enable.idempotence
enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms
max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms security.protocol
security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms transaction.timeout.ms transaction.two.phase.commit.enable
transactional.id value.serializer
""".split()  # noqa: SIM905 - so many names are read best as lines


def parse(**options: str) -> WriterSettings:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return parse_write_options(SERVERS | named)


def test_every_setting_of_kafkas_producer_is_in_the_table_once() -> None:
    names = [row.name for row in WRITE_OPTIONS]
    assert len(names) == len({name.lower() for name in names})
    assert {f"kafka.{name}" for name in PRODUCER_CONFIG} <= set(names)
    assert all(row.help for row in WRITE_OPTIONS)


@pytest.mark.parametrize(
    "row",
    [row for row in WRITE_OPTIONS if row.name not in ("kafka.ssl.*", "kafka.sasl.*")],
    ids=lambda row: row.name,
)
def test_an_option_is_taken_or_refused_as_its_row_says(row: object) -> None:
    name, status = row.name, row.status  # type: ignore[attr-defined]
    given = SERVERS | {name.replace("*", "x").upper(): VALUES.get(name, "5")}
    if status == "refused":
        with pytest.raises(OptionError, match="is refused: ") as refused:
            parse_write_options(given)
        assert name.removesuffix("*").lower() in str(refused.value).lower()
    else:
        assert parse_write_options(given).servers


@pytest.mark.parametrize("name", ["kafka.batch.sise", "subscribe", "kafka.group.id", "speed"])
def test_an_unknown_option_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(OptionError, match=f"option '{name}' is unknown"):
        parse_write_options(SERVERS | {name: "1"})


def test_a_stream_that_has_a_name_is_not_refused() -> None:
    """Spark hands `queryName` to the sink, in lower case, among its options."""
    assert (
        parse_write_options({"kafka.bootstrap.servers": "h:1", "queryname": "q"}).servers == "h:1"
    )


def test_the_defaults_are_safe_and_large() -> None:
    settings = parse()
    producer = settings.producer
    assert (producer.acks, producer.idempotent, producer.codec) == (-1, True, Codec.NONE)
    assert producer.batch_bytes == BATCH_BYTES
    assert settings.topic is None
    assert settings.record_bytes_max is None


def test_settings_arrive_where_they_belong() -> None:
    settings = parse(
        topic="t", kafka_acks="1", kafka_batch_size="777", kafka_buffer_memory="888",
        kafka_compression_type="ZSTD", kafka_compression_zstd_level="-7",
        kafka_max_block_ms="5", kafka_client_id="me", kafka_delivery_timeout_ms="9",
    )  # fmt: skip
    producer = settings.producer
    assert settings.topic == "t"
    assert (producer.acks, producer.idempotent) == (1, False)
    assert (producer.batch_bytes, producer.buffer_bytes) == (777, 888)
    assert (producer.codec, producer.compression_level) == (Codec.ZSTD, -7)
    assert producer.delivery_timeout_ms == 9
    assert (producer.client.operation_timeout_ms, producer.client.client_id) == (5, "me")


def test_a_batch_is_no_larger_than_the_largest_request() -> None:
    settings = parse(kafka_max_request_size="1000")
    assert settings.record_bytes_max == settings.producer.batch_bytes == 1000


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kafka_security_protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        ({"kafka_sasl_mechanism": "PLAIN"}, "but security.protocol is PLAINTEXT"),
        ({"kafka_acks": "2"}, "'kafka.acks' is '2'"),
        ({"kafka_acks": "1", "kafka_enable_idempotence": "true"}, "needs kafka.acks=all"),
        ({"kafka_max_in_flight_requests_per_connection": "6"}, "is 6; give at most 5"),
        ({"kafka_retries": "0"}, "'kafka.retries' is '0'"),
        ({"kafka_compression_type": "brotli"}, "'kafka.compression.type' is 'brotli'"),
        ({"compression": "gzip", "kafka_compression_type": "gzip"}, "give one of the options"),
        ({"compression": "gzip", "kafka_compression_gzip_level": "10"}, "give at most 9"),
        ({"topic": " "}, "'topic' is empty"),
        ({"kafka_bootstrap_servers": ""}, "'kafka.bootstrap.servers' is missing"),
    ],
)
def test_a_bad_value_is_an_error_that_names_its_option(
    options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        parse(**options)


# Exactly once


def once(*, streaming: bool = True, **options: str) -> OnceOptions | None:
    return parse_once_options(SERVERS | options, streaming=streaming)


def test_a_stream_that_is_exactly_once_needs_nothing_but_its_checkpoint() -> None:
    found = once(exactlyOnce="TRUE", checkpointLocation="state/x")
    assert found == OnceOptions("", "state/x", None, 900_000)
    assert once() is None and once(exactlyOnce="false") is None


def test_a_batch_write_that_is_exactly_once_says_who_writes_which_version() -> None:
    found = once(streaming=False, exactlyOnce="true", txnAppId="daily", txnVersion="20261117")
    assert found == OnceOptions("daily", "", 20261117, 900_000)


@pytest.mark.parametrize(
    ("streaming", "options", "message"),
    [
        (True, {"kafka.acks": "1"}, "needs kafka.acks=all"),
        (True, {"kafka.enable.idempotence": "false"}, "needs kafka.enable.idempotence=true"),
        (True, {"asyncProgressTrackingEnabled": "true"}, "asyncProgressTrackingEnabled=false"),
        (True, {"txnVersion": "1"}, "'txnVersion' is for batch writes"),
        (True, {"txnAppId": "x" * 201}, "longer than 200"),
        (True, {"kafka.transaction.timeout.ms": "0"}, r"'kafka\.transaction\.timeout\.ms' is '0'"),
        (False, {"txnAppId": "x"}, "needs txnAppId .* and txnVersion"),
        (False, {"txnVersion": "1"}, "needs txnAppId .* and txnVersion"),
        (False, {"txnAppId": "x", "txnVersion": "-1"}, "'txnVersion' is '-1'"),
        (True, {"exactlyOnce": "yes"}, "'exactlyOnce' is 'yes'"),
        (True, {"exactlyOnce": "false", "txnAppId": "x"}, "need exactlyOnce=true"),
    ],
)
def test_what_cannot_be_exactly_once_is_refused(
    streaming: bool, options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        parse_once_options(SERVERS | {"exactlyOnce": "true"} | options, streaming=streaming)
