"""The offsets that a query leaves in its checkpoint."""

from __future__ import annotations

import json

import pytest

from tidelog.model import TopicPartition
from tidelog.spark.source.offsets import (
    OffsetFormatError,
    StreamOffset,
    parse_assignment,
    parse_offsets,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_what_the_connector_wrote_is_understood() -> None:
    stored = StreamOffset.from_dict(json.loads('{"b":{"0":7},"a":{"1":5,"0":2}}'))
    assert stored == StreamOffset({B0: 7, A0: 2, A1: 5})


def test_a_round_trip_keeps_everything_and_its_order() -> None:
    offset = StreamOffset({B0: 7, A1: 5, A0: 2}, {A0: 1}, {"b": "x", "a": "y"}, "g", True)
    text = json.dumps(offset.to_dict())
    assert text == (
        '{"a": {"0": 2, "1": 5}, "b": {"0": 7}, "@tidelog": {"from": {"a": {"0": 1}}, '
        '"group": "g", "ids": {"a": "y", "b": "x"}, "initial": true}}'
    )
    again = StreamOffset.from_dict(json.loads(text))
    assert again == offset
    assert json.dumps(again.to_dict()) == text


def test_partitions_are_in_order_of_their_numbers() -> None:
    many = StreamOffset({TopicPartition("a", each): 0 for each in (10, 9, 2)})
    assert json.dumps(many.to_dict()) == '{"a": {"2": 0, "9": 0, "10": 0}}'


@pytest.mark.parametrize(
    "text", ["", "[]", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}', '{"a": {"0": true}}']
)
def test_other_forms_are_refused_with_the_right_one(text: str) -> None:
    with pytest.raises(OffsetFormatError, match=r'\{"topic": \{"0": 5\}\}'):
        parse_offsets(text)


def test_an_assignment_is_a_list_of_partitions() -> None:
    assert parse_assignment('{"b": [0], "a": [1, 0]}') == [A0, A1, B0]
    assert parse_assignment('{"a": [1, 0, 1]}') == [A0, A1], "twice named is not read twice"
    for text in ("[]", '{"a": 1}', '{"a": [-1]}', '{"a": ["0"]}', "x"):
        with pytest.raises(OffsetFormatError, match=r'\{"topic": \[0, 1\]\}'):
            parse_assignment(text)
