"""Any records, through any codec and either form of the kernels, against aiokafka as the model."""

from __future__ import annotations

from collections import Counter

import aiokafka.record.default_records as model
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.kernels.forms import FORMS
from tidelog.config import TopicConfig
from tidelog.errors import KafkaError
from tidelog.model import Codec
from tidelog.protocol import batches
from tidelog.protocol.batches import Record, decode_records, encode_batch, read_header
from tidelog.storage import admission
from tidelog.storage.admission import INT64_MAX, admit

EXAMPLES = 200
RULES = TopicConfig(message_timestamp_after_max_ms=INT64_MAX, full_validation=True)

nullable_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=20), nullable_bytes), max_size=3)
records = st.builds(
    Record,
    timestamp=st.integers(0, 1 << 50),
    key=nullable_bytes,
    value=nullable_bytes,
    headers=headers,
)
record_lists = st.lists(records, min_size=1, max_size=30)
codecs = st.sampled_from(list(Codec))


def modelled(batch: bytes) -> list[Record]:
    return [
        Record(each.offset, each.timestamp, each.key, each.value, list(each.headers))
        for each in model.DefaultRecordBatch(bytearray(batch))
    ]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for module in (batches, admission):
        monkeypatch.setattr(module, "kernel", FORMS[request.param])
    return str(request.param)


def test_records_are_what_the_model_reads(form: str) -> None:
    ran: Counter[Codec] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(given_records=record_lists, codec=codecs, target=codecs)
    def check(given_records: list[Record], codec: Codec, target: Codec) -> None:
        for offset, record in enumerate(given_records):
            record.offset = offset
        batch = encode_batch(given_records, codec=codec)
        assert decode_records(batch) == modelled(bytes(batch)) == given_records
        rules = TopicConfig(
            message_timestamp_after_max_ms=INT64_MAX, full_validation=True, target_codec=target
        )
        stored = admit(memoryview(batch), rules, 0).buffer
        assert modelled(bytes(stored)) == given_records
        assert read_header(stored).codec is target
        ran[codec] += 1

    check()
    assert sum(ran.values()) >= EXAMPLES
    assert set(ran) == set(Codec)


def test_any_bytes_are_judged_without_a_surprise(form: str) -> None:
    ran: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(
        given_records=record_lists,
        codec=codecs,
        at=st.floats(0, 1, exclude_max=True),
        patch=st.binary(max_size=12),
    )
    def check(given_records: list[Record], codec: Codec, at: float, patch: bytes) -> None:
        batch = encode_batch(given_records, codec=codec)
        position = 21 + int(at * (len(batch) - 21))
        batch[position : position + len(patch)] = patch
        header = read_header(batch)
        header.batch_length = len(batch) - batches.LOG_OVERHEAD
        batches.seal(batch, 0, header)
        try:
            admitted = admit(memoryview(batch), RULES, 0)
        except KafkaError:
            ran["refused"] += 1
        else:
            assert len(decode_records(admitted.buffer)) == admitted.header.record_count
            ran["admitted"] += 1

    check()
    assert ran.total() >= EXAMPLES
