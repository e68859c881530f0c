"""What is committed, and in whose name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID


class Committer(NamedTuple):
    """In whose name offsets are committed, and by which version of the request.

    The generation is a member epoch in a consumer group.
    """

    member_id: str
    instance_id: str | None
    generation: int
    version: int = 8
    in_transaction: bool = False
    # Whose groups count together; empty where nobody has logged in.
    user: str = ""

    @property
    def is_member(self) -> bool:
        return self.generation >= 0 or bool(self.member_id) or self.instance_id is not None


@dataclass(slots=True)
class Commit:
    """The next offset to consume of one partition, as a client gave it."""

    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
