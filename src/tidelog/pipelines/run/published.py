"""What runs and how far it is, in a compacted topic: written by runners, read by `pipeline list`.

A record's key is the pipeline's name, with `/catch-up` or `/batch` behind it for runs in these
modes, and its value a JSON object (`to_json` of `Published`). Whoever reads the topic to its end
knows the last word of every pipeline in each mode; one that has said nothing for `SILENT_MS` and
did not take its leave is lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_producer import Producer
from tidelog.client.offsets import Start, log_bounds
from tidelog.client.operation import UnknownTopicError, topic_metadata
from tidelog.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.pipelines.declare.pipeline import PUBLISHED_TOPIC, Mode

INTERVAL_MS: Final = 5_000
SILENT_MS: Final = 4 * INTERVAL_MS
_POLL_S: Final = 0.5


@dataclass(slots=True)
class Published:
    """The last word of one pipeline's last run in a mode."""

    name: str
    state: str
    mode: str
    file: str
    host: str
    process: int
    started_ms: int
    updated_ms: int
    queries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> str:
        """A pipeline runs as a stream most of the time; other runs do not take that word away."""
        return self.name if self.mode == Mode.STREAM else f"{self.name}/{self.mode}"

    def to_json(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Published | None:
        """None for what is no such object."""
        try:
            return cls(**json.loads(value))
        except (ValueError, TypeError):
            return None

    def state_at(self, now_ms: int) -> str:
        """Its state, or `lost` where it went away without a word."""
        alive = self.state in ("starting", "running")
        return "lost" if alive and now_ms - self.updated_ms > SILENT_MS else self.state


class Publisher:
    """Writes the progress of one pipeline; makes the topic where it is not there."""

    def __init__(self, servers: str, client: ClientSettings) -> None:
        self._producer = Producer(servers, ProducerSettings(client=client))
        self._ready = False

    def publish(self, word: Published) -> None:
        """Send it and wait until it is there."""
        if not self._ready:
            _ensure_topic(self._producer)
            self._ready = True
        record = ProducerRecord(PUBLISHED_TOPIC, word.to_json(), word.key.encode())
        delivery = self._producer.send(record)
        self._producer.flush()
        delivery.result()

    def close(self) -> None:
        self._producer.close()


def _ensure_topic(client: Client) -> None:
    topic = NewTopic(PUBLISHED_TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
    try:
        client.run(create_topic(client.cluster, topic))
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def read_published(servers: str, client: ClientSettings) -> Sequence[Published]:
    """The last word of every pipeline in each mode, by name; as a stream first."""
    # Imported here: who lists nothing does not pay for the record codecs.
    from tidelog.client.blocking_consumer import Consumer

    found: dict[str, Published] = {}
    partition = TopicPartition(PUBLISHED_TOPIC, 0)
    with Consumer(servers, ConsumerSettings(client=client)) as consumer:
        try:
            consumer.run(topic_metadata(consumer.cluster, [PUBLISHED_TOPIC]))
        except UnknownTopicError:
            return []
        start, end = consumer.run(log_bounds(consumer.cluster, [partition]))[partition]
        if start < end:
            consumer.assign({partition: Start("start")})
        # The position also moves over what compaction has left of the last records.
        while start < end and consumer.core.positions[partition].position < end:
            for _, records in consumer.poll(_POLL_S):
                for record in records:
                    _take(found, record.key, record.value)
    return [found[name] for name in sorted(found)]


def _take(found: dict[str, Published], key: bytes | None, value: bytes | None) -> None:
    name = (key or b"").decode(errors="replace")
    word = Published.from_json(value) if value is not None else None
    if word is None:
        found.pop(name, None)
    else:
        found[name] = word
