"""Every option of the table: taken, or refused by name."""

from __future__ import annotations

import pytest

from tidelog.model import Isolation, TopicPartition
from tidelog.spark.option_values import OptionError
from tidelog.spark.read_option_table import READ_OPTIONS
from tidelog.spark.read_options import parse

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
}
FLAGS = {"failOnDataLoss", "includeHeaders", "kafka.check.crcs"}


def sample(name: str) -> str:
    return SAMPLES.get(name, "false" if name in FLAGS else "7")


@pytest.mark.parametrize("row", READ_OPTIONS, ids=lambda row: row.name)
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
        ({**BASE, "startingOffsets": "soon"}, True, "'soon'; give earliest, latest or JSON"),
        ({**BASE, "startingOffsets": "latest"}, False, "cannot be latest"),
        ({**BASE, "startingOffsets": '{"orders": {"0": -1}}'}, False, "cannot be latest"),
        ({**BASE, "startingOffsets": '{"orders": {"0": -3}}'}, True, "below -2"),
        ({**BASE, "endingOffsets": "earliest"}, False, "cannot be earliest"),
        ({**BASE, "endingOffsets": "latest"}, True, "is for batch queries"),
        ({**BASE, "failOnDataLoss": "yes"}, True, "give true or false"),
        ({**BASE, "maxOffsetsPerTrigger": "0"}, True, "a whole number from 1 on"),
        ({**BASE, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, True, "is above"),
        ({**BASE, "maxTriggerDelay": "soon"}, True, "a duration like"),
        ({**BASE, "maxBytesPerTrigger": "many"}, True, "give bytes"),
        ({**BASE, "kafka.isolation.level": "x"}, True, "read_uncommitted or read_committed"),
        ({**BASE, "kafka.security.protocol": "SSL"}, True, "'SSL': the broker has no TLS"),
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
