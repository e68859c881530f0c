"""WriteTxnMarkers (key 27), versions 1 to 2.

Behaviour: for transaction coordinators, that is for brokers, and for principals with Alter on the
cluster (KIP-1037), who end a hanging transaction. A marker is answered when it is committed; a
repeated marker gets the same answer and is not written twice. A marker of a replaced coordinator,
or with an epoch older than the producer's, is refused.
Versions: 2 carries the version of the transaction protocol; with version 2 of that, a marker that
ends data must have a greater epoch than the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from tidelog.coordinators.transactions.marking import Mark
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.handlers.asked import by_topic
from tidelog.server.routes import served
from tidelog.server.tools import TransactionContext

# Markers that are written at a stretch, while everything else waits.
_AT_ONCE = 200


@served(waits=True)
async def write_txn_markers(
    request: WriteTxnMarkersRequest, context: TransactionContext
) -> WriteTxnMarkersResponse:
    may = context.may(Operation.ALTER, CLUSTER)
    may = may or context.authorize(Operation.CLUSTER_ACTION, CLUSTER)
    response, pace = WriteTxnMarkersResponse(), context.pace()
    for marker in request.markers:
        asked = await context.complete(by_topic(marker.topics, ("name",), None))
        partitions = [
            TopicPartition(topic.name, index) for topic, parts in asked for index in parts
        ]
        if may:
            codes = await _write(marker, partitions, context)
        else:
            codes = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * len(partitions)
        response.markers.append(_result(marker, zip(partitions, codes, strict=True)))
        await pace.step()
    return response


async def _write(
    marker: WritableTxnMarker, partitions: list[TopicPartition], context: TransactionContext
) -> list[ErrorCode]:
    mark = Mark(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )
    codes: list[ErrorCode] = []
    for start in range(0, len(partitions), _AT_ONCE):
        some = partitions[start : start + _AT_ONCE]
        try:
            codes += await context.tools.writer.write(mark, some)
        except KafkaError as error:
            codes += [error.code] * len(some)
        await context.turns.pause()
    return codes


def _result(
    marker: WritableTxnMarker, outcomes: Iterable[tuple[TopicPartition, ErrorCode]]
) -> WritableTxnMarkerResult:
    topics = [
        WritableTxnMarkerTopicResult(
            name, [WritableTxnMarkerPartitionResult(each.partition, code) for each, code in some]
        )
        for name, some in groupby(outcomes, key=lambda outcome: outcome[0].topic)
    ]
    return WritableTxnMarkerResult(marker.producer_id, topics)
