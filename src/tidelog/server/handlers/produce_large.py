"""A produce request for thousands of partitions, as several for fewer.

Partitions of a request have nothing to do with each other, so that each part can be admitted and
appended by itself, with a pause in between, and the answers put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_PARTITIONS_AT_ONCE = 256


def split(request: ProduceRequest) -> Iterator[ProduceRequest]:
    """The same records in the same order, in requests for some partitions each."""
    topics: list[TopicProduceData] = []
    left = _PARTITIONS_AT_ONCE
    for topic in request.topic_data:
        # A topic without partitions has its place in the answer, and costs as much.
        waiting: Sequence[PartitionProduceData] = topic.partition_data
        while True:
            taken, waiting = waiting[:left], waiting[left:]
            topics.append(TopicProduceData(topic.name, topic.topic_id, list(taken)))
            left -= max(1, len(taken))
            if left <= 0:
                yield _with_topics(request, topics)
                topics, left = [], _PARTITIONS_AT_ONCE
            if not waiting:
                break
    if topics:
        yield _with_topics(request, topics)


def _with_topics(request: ProduceRequest, topics: list[TopicProduceData]) -> ProduceRequest:
    return ProduceRequest(request.transactional_id, request.acks, request.timeout_ms, topics)


def join(answers: Sequence[ProduceResponse]) -> ProduceResponse:
    """The answer to the whole request."""
    whole = ProduceResponse()
    last: TopicProduceResponse | None = None
    for answer in answers:
        for topic in answer.responses:
            if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
                last.partition_responses += topic.partition_responses
            else:
                whole.responses.append(topic)
                last = topic
    endpoints = {each.node_id: each for answer in answers for each in answer.node_endpoints}
    whole.node_endpoints = list(endpoints.values())
    return whole
