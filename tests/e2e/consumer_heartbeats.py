"""Heartbeats of a member of a consumer group, as both brokers are sent them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)


def heartbeat_request(
    group: str, member: str, epoch: int, owned: tuple[UUID, list[int] | None], **more: object
) -> ConsumerGroupHeartbeatRequest:
    """The first one names the topic `t`; `owned` are the topic's id and what the member says."""
    request = ConsumerGroupHeartbeatRequest(group, member, epoch)
    topic_id, partitions = owned
    if epoch == 0:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = ["t"]
        request.topic_partitions = []
    elif partitions is not None:
        request.topic_partitions = [TopicPartitions(topic_id, partitions)] if partitions else []
    for name, value in more.items():
        setattr(request, name, value)
    return request


def assigned(answer: Any) -> list[int] | None:
    """The partitions that a member is given; None where nothing is said of them."""
    if answer.assignment is None:
        return None
    return sorted(each for one in answer.assignment.topic_partitions for each in one.partitions)
