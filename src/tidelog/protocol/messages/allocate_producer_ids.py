"""AllocateProducerIds: a broker takes a block of producer ids. Its one version is flexible."""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import int16, int32, int64


@api_message
class AllocateProducerIdsRequest:
    """Who takes the block, in which life."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@api_message
class AllocateProducerIdsResponse:
    """The block, which nobody else is given."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
