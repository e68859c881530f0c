"""What most clients send takes a shorter way, which takes nothing that the long one refuses."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import pytest

from tests.unit.kernels.forms import FORMS
from tidelog.config import TopicConfig
from tidelog.model import Codec, TimestampType
from tidelog.protocol import batches
from tidelog.protocol.batches import Record, encode_batch
from tidelog.storage import admission
from tidelog.storage.admission import admit, admit_plain

NOW = 1_700_000_000_000
RULES = TopicConfig()


@pytest.fixture(params=FORMS, autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "kernel", FORMS[request.param])


def some_records(count: int = 5) -> list[Record]:
    return [Record(number, NOW + number, b"key%d" % number, b"value") for number in range(count)]


def test_what_is_plain_is_admitted_as_it_is() -> None:
    for producer in ({}, {"producer_id": 7, "producer_epoch": 0, "base_sequence": 3}):
        batch = memoryview(bytearray(encode_batch(some_records(), **producer)))
        plain = admit_plain(batch, RULES, NOW)
        assert plain is not None
        assert plain.buffer is batch
        assert plain.header == admit(batch, RULES, NOW).header


@pytest.mark.parametrize(
    "rules",
    [
        replace(RULES, target_codec=Codec.LZ4),
        replace(RULES, message_timestamp_type=TimestampType.LOG_APPEND_TIME),
        replace(RULES, message_timestamp_after_max_ms=0),
        replace(RULES, message_timestamp_before_max_ms=-5),
        replace(RULES, max_message_bytes=100),
    ],
)
def test_what_the_topic_would_change_or_refuse_is_not_plain(rules: TopicConfig) -> None:
    assert admit_plain(memoryview(encode_batch(some_records())), rules, NOW) is None


def test_records_without_keys_are_not_plain_on_a_compacted_topic() -> None:
    rules = replace(RULES, cleanup_compact=True)
    keyless = encode_batch([Record(0, NOW, None, b"value")])
    assert admit_plain(memoryview(keyless), rules, NOW) is None
    assert admit_plain(memoryview(encode_batch(some_records())), rules, NOW) is not None


def test_nothing_is_plain_that_is_refused_or_changed() -> None:
    chance = random.Random(13)
    taken = 0
    for _ in range(3_000):
        batch = bytearray(encode_batch(some_records(chance.randrange(1, 4))))
        for _ in range(chance.randrange(3)):
            batch[chance.randrange(len(batch))] = chance.randrange(256)
        if chance.random() < 0.7 and len(batch) >= batches.HEADER_BYTES:
            struct.pack_into(
                ">I", batch, batches.CRC_POSITION, batches.compute_crc(batch, 0, len(batch))
            )
        plain = admit_plain(memoryview(bytearray(batch)), RULES, NOW)
        if plain is not None:
            taken += 1
            full = admit(memoryview(bytearray(batch)), RULES, NOW)
            assert bytes(full.buffer) == bytes(plain.buffer) == bytes(batch)
            assert full.header == plain.header
    assert taken > 500
