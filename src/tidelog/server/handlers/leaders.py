"""Who leads a partition now, told with the refusal of one who does not (KIP-951).

A client then goes there at once, without asking for metadata first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from tidelog.cluster.image import TopicImage
from tidelog.errors import ErrorCode
from tidelog.server.handlers.addresses import address_of
from tidelog.server.tools import DataContext

L = TypeVar("L")
N = TypeVar("N")

MOVED = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))


class CurrentLeaders:
    """The leaders that one answer names, and where they are."""

    def __init__(self, context: DataContext) -> None:
        self._context = context
        self._image = context.image
        self._leaders: set[int] = set()

    def of(
        self, topic: str, topic_id: UUID, partition: int, make: Callable[[int, int], L]
    ) -> L | None:
        """The leader and epoch of a partition, as `make` puts them; None where it is not known."""
        found: TopicImage | None = (
            self._image.topics.get(topic) if topic else self._context.topic_by_id(topic_id)
        )
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        state = found.partitions[partition]
        self._leaders.add(state.leader)
        return make(state.leader, state.leader_epoch)

    def endpoints(self, make: Callable[[int, str, int, str | None], N]) -> list[N]:
        """Where the leaders that were named are reached."""
        found = []
        for leader in sorted(self._leaders):
            broker = self._image.brokers.get(leader)
            address = None if broker is None else address_of(broker, self._image, self._context)
            if broker is not None and address is not None:
                found.append(make(leader, *address, broker.rack))
        return found
