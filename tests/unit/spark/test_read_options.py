"""Every option of the table: taken, or refused by name."""

from __future__ import annotations

import pickle

import pytest

from tidelog.model import Isolation, TopicPartition
from tidelog.spark.option_values import OptionError
from tidelog.spark.source.read_option_table import READ_OPTIONS
from tidelog.spark.source.read_options import parse

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}

# A value for each option that does not take any word.
SAMPLES = {
    "assign": '{"orders": [0]}',
    "startingOffsets": "earliest",
    "startingTimestamp": "1000",
    "startingOffsetsByTimestamp": '{"orders": {"0": 1000}}',
    "startingOffsetsByTimestampStrategy": "latest",
    "endingOffsets": '{"orders": {"0": 10}}',
    "endingTimestamp": "1000",
    "endingOffsetsByTimestamp": '{"orders": {"0": 1000}}',
    "maxTriggerDelay": "5m",
    "kafka.isolation.level": "read_committed",
    "kafka.security.protocol": "PLAINTEXT",
    "maxBytesPerTrigger": "64m",
    "maxDecompressedBytes": "1g",
    "includeHeaders": "true",
}
# The names in `ConsumerConfig` of Kafka's Java client 3.9 and 4.3, but for sasl.* and ssl.*.
CONSUMER_CONFIG = """
allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
bootstrap.servers check.crcs client.dns.lookup client.id client.rack config.providers
connections.max.idle.ms default.api.timeout.ms enable.auto.commit enable.metrics.push
exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
request.timeout.ms retry.backoff.max.ms retry.backoff.ms security.protocol security.providers
send.buffer.bytes session.timeout.ms share.acknowledgement.mode share.acquire.mode
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms value.deserializer
""".split()  # noqa: SIM905 - so many names are read best as lines

# Those of the connector itself, as its `KafkaSourceProvider` (4.2) names them.
CONNECTOR_OPTIONS = """
assign endingoffsets endingoffsetsbytimestamp endingtimestamp failondataloss fetchoffset.numretries
fetchoffset.retryintervalms groupidprefix includeheaders kafkaconsumer.polltimeoutms
maxoffsetspertrigger maxrecordsperpartition maxtriggerdelay minoffsetspertrigger minpartitions
startingoffsets startingoffsetsbytimestamp startingoffsetsbytimestampstrategy startingtimestamp
subscribe subscribepattern
""".split()  # noqa: SIM905

FLAGS = {"failOnDataLoss", "kafka.check.crcs"}


def sample(name: str) -> str:
    return SAMPLES.get(name, "false" if name in FLAGS else "7")


# Families of names that make sense together alone; they have tests of their own.
SECURED = ("kafka.ssl.*", "kafka.sasl.*")


@pytest.mark.parametrize(
    "row", [row for row in READ_OPTIONS if row.name not in SECURED], ids=lambda row: row.name
)
def test_each_option_of_the_table(row) -> None:  # type: ignore[no-untyped-def]
    given = dict(BASE)
    if row.name in ("assign", "subscribePattern"):
        del given["subscribe"]
    name = row.name.replace("*", "truststore.location")
    given[name.upper() if row.status == "same" else name] = sample(row.name)
    streaming = not row.name.startswith("ending")
    if row.status == "refused":
        with pytest.raises(OptionError, match=f"option '{name}' is refused: "):
            parse(given, streaming=streaming)
    else:
        parse(given, streaming=streaming)


def test_every_option_of_the_connector_and_its_consumer_is_in_the_table_once() -> None:
    names = [row.name for row in READ_OPTIONS]
    lowered = {name.lower() for name in names}
    assert len(names) == len(lowered)
    assert {f"kafka.{name}" for name in CONSUMER_CONFIG} <= set(names)
    assert set(CONNECTOR_OPTIONS) <= lowered
    assert all(row.help for row in READ_OPTIONS)


# What the samples above leave as it is without them.
DEFAULTS = {"kafka.security.protocol"}


@pytest.mark.parametrize(
    "row",
    [row for row in READ_OPTIONS if row.status != "refused" and row.name not in SECURED],
    ids=lambda row: row.name,
)
def test_an_option_changes_what_is_done_or_says_that_it_does_not(row) -> None:  # type: ignore[no-untyped-def]
    streaming = not row.name.startswith("ending")
    given = {**BASE, row.name: sample(row.name)}
    if row.name in ("assign", "subscribePattern"):
        del given["subscribe"]
    changes = parse(given, streaming=streaming) != parse(BASE, streaming=streaming)
    without_effect = row.help.startswith("accepted, without effect") or row.name in DEFAULTS
    assert changes is not without_effect


def test_settings_of_the_client_arrive_where_they_belong() -> None:
    given = {
        "kafka.client.id": "mine",
        "kafka.request.timeout.ms": "11",
        "kafka.default.api.timeout.ms": "12",
        "kafka.socket.connection.setup.timeout.ms": "13",
        "kafka.retry.backoff.ms": "14",
        "kafka.retry.backoff.max.ms": "15",
        "kafka.metadata.max.age.ms": "16",
        "kafka.fetch.max.wait.ms": "17",
        "kafka.fetch.max.bytes": "18",
        "kafka.max.partition.fetch.bytes": "19",
        "kafka.check.crcs": "false",
        "maxDecompressedBytes": "20k",
    }
    settings = parse({**BASE, **given}, streaming=True).consumer
    client = settings.client
    assert client.client_id == "mine"
    assert (client.request_timeout_ms, client.operation_timeout_ms) == (11, 12)
    assert client.connect_timeout_ms == 13
    assert (client.retry_backoff_ms, client.retry_backoff_max_ms) == (14, 15)
    assert client.metadata_max_age_ms == 16
    assert settings.max_wait_ms == 17
    assert (settings.max_bytes, settings.partition_max_bytes) == (18, 19)
    assert not settings.check_crcs
    assert settings.max_decompressed_bytes == 20 << 10


def test_a_secret_is_read_from_the_environment_and_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("READER_PASSWORD", "canary-88")
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "reader",
        "kafka.sasl.password": "env:READER_PASSWORD",
        "kafka.ssl.truststore.location": "/ca.pem",
    }
    parsed = parse({**BASE, **given}, streaming=True)
    security = parsed.consumer.client.security
    assert security.protocol == "SASL_SSL"
    assert security.sasl is not None
    assert security.sasl.password == "canary-88"
    assert "canary-88" not in repr(parsed)
    # As it goes to a task.
    there = pickle.loads(pickle.dumps(parsed))
    assert there.consumer.client.security == security
    assert hash(there.consumer.client.security) == hash(security)


def test_a_time_wins_over_times_and_those_over_offsets() -> None:
    given = {
        **BASE,
        "startingOffsets": "latest",
        "startingOffsetsByTimestamp": '{"orders": {"0": 5}}',
        "endingOffsets": "latest",
        "endingOffsetsByTimestamp": '{"orders": {"0": 6}}',
    }
    options = parse(given, streaming=False)
    assert options.starting.per_partition == {TopicPartition("orders", 0): 5}
    assert options.ending.per_partition == {TopicPartition("orders", 0): 6}
    options = parse({**given, "startingTimestamp": "7", "endingTimestamp": "8"}, streaming=False)
    assert (options.starting.timestamp_ms, options.ending.timestamp_ms) == (7, 8)


def test_a_schema_for_values_is_refused_with_the_remedy() -> None:
    with pytest.raises(OptionError, match=r"'value\.schema' is refused: .*tidelog\.spark\.decode"):
        parse({**BASE, "value.schema": "n INT"}, streaming=False)


def test_an_unknown_option_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(OptionError, match=r"'startingOffset' is unknown.*'startingOffsets'"):
        parse({**BASE, "startingOffset": "earliest"}, streaming=True)
    with pytest.raises(OptionError, match=r"'kafka\.colour' is unknown"):
        parse({**BASE, "kafka.colour": "red"}, streaming=True)


@pytest.mark.parametrize(
    ("given", "streaming", "complaint"),
    [
        ({"subscribe": "a"}, True, "'kafka.bootstrap.servers' is missing"),
        ({"kafka.bootstrap.servers": "h:1"}, True, "give one of the options.*none is given"),
        ({**BASE, "assign": '{"a": [0]}'}, True, "assign and subscribe are given"),
        ({**BASE, "subscribe": " "}, True, "'subscribe' is empty"),
        ({**BASE, "subscribe": " , "}, True, "'subscribe' names no topic"),
        ({**BASE, "startingOffsets": "group:"}, True, "without the name of a group"),
        ({**BASE, "startingOffsets": "soon"}, True, "'soon'; give earliest, latest or JSON"),
        ({**BASE, "startingOffsets": "latest"}, False, "cannot be latest"),
        ({**BASE, "startingOffsets": '{"orders": {"0": -1}}'}, False, "cannot be latest"),
        ({**BASE, "startingOffsets": '{"orders": {"0": -3}}'}, True, "below -2"),
        ({**BASE, "endingOffsets": "earliest"}, False, "cannot be earliest"),
        ({**BASE, "endingOffsets": '{"orders": {"0": -2}}'}, False, "cannot be earliest"),
        ({**BASE, "startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, True, "negative time"),
        ({**BASE, "kafka.max.partition.fetch.bytes": "999999999"}, True, "above 128 MiB"),
        ({**BASE, "endingOffsets": "latest"}, True, "is for batch queries"),
        ({**BASE, "failOnDataLoss": "yes"}, True, "give true or false"),
        ({**BASE, "maxOffsetsPerTrigger": "0"}, True, "a whole number from 1 on"),
        ({**BASE, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, True, "is above"),
        ({**BASE, "maxTriggerDelay": "soon"}, True, "a duration like"),
        ({**BASE, "maxBytesPerTrigger": "many"}, True, "give bytes"),
        ({**BASE, "kafka.isolation.level": "x"}, True, "read_uncommitted or read_committed"),
        ({**BASE, "kafka.security.protocol": "TLS"}, True, "security.protocol is 'TLS'; give"),
        ({**BASE, "kafka.ssl.ca.location": "x"}, True, "but security.protocol is PLAINTEXT"),
        (
            {**BASE, "kafka.security.protocol": "SSL", "kafka.ssl.engine.factory.class": "x"},
            True,
            "ssl.engine.factory.class is not supported",
        ),
        (
            {**BASE, "kafka.security.protocol": "SSL", "kafka.ssl.key.password": "env:NOT_SET_1"},
            True,
            "'kafka.ssl.key.password' is env:NOT_SET_1, but the environment has no NOT_SET_1",
        ),
        (
            {"kafka.bootstrap.servers": "h:1", "subscribePattern": "("},
            True,
            "'subscribePattern' is no pattern",
        ),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], streaming: bool, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        parse(given, streaming=streaming)


def test_values_arrive_typed() -> None:
    options = parse(
        {
            **BASE,
            "subscribe": "b, a,b",
            "startingOffsets": '{"orders": {"0": 23, "1": -2}}',
            "maxOffsetsPerTrigger": "500",
            "maxBytesPerTrigger": "64m",
            "maxTriggerDelay": "90s",
            "minPartitions": "8",
            "kafka.isolation.level": "READ_COMMITTED",
            "kafka.group.id": "billing",
            "kafkaConsumer.pollTimeoutMs": "9",
        },
        streaming=True,
    )
    assert options.selection.topics == ("a", "b")
    assert options.starting.per_partition == {
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): -2,
    }
    assert options.limits.max_rows == 500
    assert options.limits.max_bytes == 64 << 20
    assert options.limits.max_delay_ms == 90_000
    assert options.tasks.min_tasks == 8
    assert options.consumer.isolation is Isolation.READ_COMMITTED
    assert options.group == "billing"
    assert options.policy.stall_timeout_ms == 9


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert parse(BASE, streaming=True).starting.kind == "latest"
    assert parse(BASE, streaming=False).starting.kind == "earliest"
    group = parse({**BASE, "startingOffsets": "group:g"}, streaming=True).starting
    assert (group.kind, group.group) == ("group", "g")


@pytest.mark.parametrize("text", ["{}", '{"orders": []}'])
def test_an_assignment_of_nothing_is_refused(text: str) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "assign": text}
    with pytest.raises(OptionError, match="'assign' names no partition"):
        parse(given, streaming=True)


def test_the_brokers_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", "broker:9092")
    assert parse({"subscribe": "a"}, streaming=True).bootstrap_servers == "broker:9092"
    named = {"subscribe": "a", "kafka.bootstrap.servers": "other:9092"}
    assert parse(named, streaming=True).bootstrap_servers == "other:9092"
