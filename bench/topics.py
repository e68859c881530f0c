"""Topics for one measurement: made before it, deleted after it, so that disks do not fill."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

_numbers = itertools.count()


@contextlib.contextmanager
def fresh_topic(
    bootstrap_servers: str, partitions: int = 1, name: str | None = None, replicas: int = 1
) -> Iterator[str]:
    """A new topic whose files go at once when it is deleted, whichever broker holds it."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    name = name or f"bench-{os.getpid()}-{next(_numbers)}"
    config = {"file.delete.delay.ms": "0"}
    if replicas > 2:
        config["min.insync.replicas"] = "2"
    topic = NewTopic(name, partitions, replicas, config=config)
    admin.create_topics([topic])[name].result(30)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(30)
        # What one broker wrote must not be written back while the other is measured.
        os.sync()


def log_end(bootstrap_servers: str, topic: str, partitions: int) -> int:
    """How many records the topic holds, to see that what was acknowledged is there."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench"})
    try:
        pairs = (TopicPartition(topic, partition) for partition in range(partitions))
        return sum(consumer.get_watermark_offsets(pair, timeout=30)[1] for pair in pairs)
    finally:
        consumer.close()
