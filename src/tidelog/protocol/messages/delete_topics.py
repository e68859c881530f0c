"""DeleteTopics: deletes topics by name or id.

Version notes: 4 is flexible, 5 answers with messages, 6 takes ids.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, string, structure, uuid


@structure
class DeleteTopicState:
    """A topic to delete, by name or by id."""

    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: UUID = uuid("6+")


@api_message
class DeleteTopicsRequest:
    """Topics to delete."""

    topics: list[DeleteTopicState] = array_of(DeleteTopicState, "6+")
    topic_names: list[str] = array_of("string", "0-5", ignorable=True)
    timeout_ms: int = int32()


@structure
class DeletableTopicResult:
    """What became of one topic."""

    name: str | None = string(nullable="6+")
    topic_id: UUID = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@api_message
class DeleteTopicsResponse:
    """What became of every topic."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array_of(DeletableTopicResult)
