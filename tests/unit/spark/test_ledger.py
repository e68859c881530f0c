"""What is written down of decisions, and what a query's checkpoint says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.client.transactions import PreparedTransaction
from tidelog.spark.sink.decisions import Decision, ExactlyOnceError
from tidelog.spark.sink.ledger import from_value, to_record
from tidelog.spark.sink.once import _query_in

DECISION = Decision("q", 7, (PreparedTransaction("a", 1, 2), PreparedTransaction("b", 3, 4)))


def test_a_decision_survives_the_ledger() -> None:
    record = to_record("tidelog-sink.q", DECISION)
    assert record.key == b"tidelog-sink.q" and record.value is not None
    assert from_value(record.value) == DECISION


def test_of_a_decision_that_is_done_the_transactions_are_not_kept() -> None:
    record = to_record("tidelog-sink.q", Decision("q", 7, DECISION.transactions, is_done=True))
    assert record.value is not None
    assert from_value(record.value) == Decision("q", 7, (), is_done=True)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"query": 1}', b"\xff"])
def test_a_record_that_is_no_decision_stops_the_query(value: bytes) -> None:
    with pytest.raises(ExactlyOnceError, match="__tidelog_sinks' cannot be read"):
        from_value(value)


def test_the_id_of_a_query_is_in_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"11ac-7"}')
    assert _query_in(str(tmp_path)) == "11ac-7"
    assert _query_in(f"file://{tmp_path}") == "11ac-7"


@pytest.mark.parametrize("content", [None, "", "{}", "[]"])
def test_without_an_id_the_query_is_to_be_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "metadata").write_text(content)
    for place in (str(tmp_path), "", "s3a://bucket/x"):
        with pytest.raises(ExactlyOnceError, match="set the option 'txnAppId'"):
            _query_in(place)
