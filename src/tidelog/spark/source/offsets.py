"""Offsets as a streaming query keeps them: JSON, the only durable state that the source has.

The form is that of Spark's Kafka connector, `{"topic": {"0": 5}}`, the next offset to read of each
partition, so that a checkpoint written by the connector can be taken over. One more key, `@tidelog`
(no topic can be called that), holds what a restart could not find out again:

    {"orders": {"0": 5}, "@tidelog": {"from": {"orders": {"0": 2}}, "group": "…", "ids": {…}}}

`from` is where the batch that ends here begins, for partitions of which the offsets it started from
do not tell: the first batch of a query, partitions that are new, partitions that were moved behind
lost data. `initial` marks offsets that are in nobody's log yet. `ids` are the topics' ids, by which
a topic that was deleted and created again is recognised.

Spark compares offsets as strings, so the same offsets are always written the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.errors import TidelogError
from tidelog.model import TopicPartition

RESERVED = "@tidelog"

Offsets = dict[TopicPartition, int]


class OffsetFormatError(TidelogError):
    """Offsets that are not of the connector's form."""


@dataclass(slots=True)
class StreamOffset:
    """How far a query has come; see the module's docstring."""

    next: Offsets
    start: Offsets = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    group: str = ""
    initial: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As Spark is given it; keys in a stable order."""
        reserved: dict[str, Any] = {}
        if self.start:
            reserved["from"] = nest(self.start)
        if self.group:
            reserved["group"] = self.group
        if self.topic_ids:
            reserved["ids"] = dict(sorted(self.topic_ids.items()))
        if self.initial:
            reserved["initial"] = True
        answer: dict[str, Any] = dict(nest(self.next))
        if reserved:
            answer[RESERVED] = reserved
        return answer

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> StreamOffset:
        """What `to_dict`, or the connector, has written."""
        reserved = stored.get(RESERVED, {})
        if not isinstance(reserved, dict):
            raise OffsetFormatError(f"the checkpoint's offsets hold {reserved!r} under {RESERVED}")
        own = {topic: parts for topic, parts in stored.items() if topic != RESERVED}
        return cls(
            flatten(own),
            flatten(reserved.get("from", {})),
            {str(name): str(each) for name, each in reserved.get("ids", {}).items()},
            str(reserved.get("group", "")),
            bool(reserved.get("initial", False)),
        )


def nest(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """`{"topic": {"0": 5}}`, topics and partitions in order."""
    nested: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return nested


def flatten(nested: object) -> Offsets:
    """The offsets in `{"topic": {"0": 5}}`; OffsetFormatError where it is not of that form."""
    if not isinstance(nested, dict):
        raise OffsetFormatError(f"{nested!r} is not of the form {_FORM}")
    flat: Offsets = {}
    for topic, parts in nested.items():
        if not isinstance(parts, dict):
            raise OffsetFormatError(f"topic '{topic}' has {parts!r}; the form is {_FORM}")
        for number, offset in parts.items():
            if not str(number).isdecimal() or type(offset) is not int:
                raise OffsetFormatError(
                    f"topic '{topic}' has {number!r}: {offset!r}; the form is {_FORM}"
                )
            flat[TopicPartition(topic, int(number))] = offset
    return flat


_FORM = '{"topic": {"0": 5}}'


def parse_offsets(text: str) -> Offsets:
    """Offsets per partition as an option gives them."""
    return flatten(_json(text, _FORM))


def parse_assignment(text: str) -> list[TopicPartition]:
    """`{"topic": [0, 1]}` as partitions in order."""
    form = '{"topic": [0, 1]}'
    nested = _json(text, form)
    if not isinstance(nested, dict) or not all(
        isinstance(parts, list) and all(type(each) is int and each >= 0 for each in parts)
        for parts in nested.values()
    ):
        raise OffsetFormatError(f"'{text}' is not of the form {form}")
    return sorted(
        {TopicPartition(topic, each) for topic, parts in nested.items() for each in parts}
    )


def _json(text: str, form: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OffsetFormatError(f"'{text}' is not JSON of the form {form}: {error}") from error
