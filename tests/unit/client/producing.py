"""A producer's core, and the answers that it gets."""

from __future__ import annotations

from typing import Any

from tidelog.client.batching import Identity
from tidelog.client.metadata import Cluster
from tidelog.client.producer import ProducerCore
from tidelog.client.settings import ProducerSettings
from tidelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


class FixedRandom:
    def below(self, bound: int) -> int:
        return 0

    def uuid(self) -> Any:
        raise AssertionError("no identifier is drawn here")


def new_core(cluster: Cluster, **options: Any) -> ProducerCore:
    core = ProducerCore(ProducerSettings(**options), cluster, FixedRandom())
    core.identity = Identity(7, 0)
    return core


def response(results: dict[int, tuple[int, int]], topic: str = "orders") -> ProduceResponse:
    """Error code and base offset by partition."""
    parts = [
        PartitionProduceResponse(index=index, error_code=code, base_offset=offset)
        for index, (code, offset) in results.items()
    ]
    return ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=parts)])
