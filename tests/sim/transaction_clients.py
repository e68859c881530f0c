"""What transactional clients of a world have in common: where they write, and what they know."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from tidelog.client.aio import Client
from tidelog.client.connection import Call
from tidelog.client.metadata import ANY
from tidelog.client.operation import ask, topic_metadata
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest

TOPIC: Final = "bank"
PARTITIONS: Final = 3


class Fate(Enum):
    """What a producer knows of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Written:
    """One transaction: its values by partition, and its fate."""

    name: str
    values: list[tuple[int, int]] = field(default_factory=list)
    # Of its group, where it commits one.
    offset: int = -1
    group: str = ""
    fate: Fate = Fate.ABORTED


def group_of(transactional_id: str) -> str:
    return f"group of {transactional_id}"


async def find_coordinator(client: Client, key: str, *, of_group: bool, topic: str = TOPIC) -> int:
    """The broker that coordinates a group or a transactional id; -1 where there is none now."""
    # Where the brokers are.
    await client.run(topic_metadata(client.cluster, [topic]))
    find = FindCoordinatorRequest(key_type=0 if of_group else 1, coordinator_keys=[key])
    found: Any = await client.run(ask(Call(ANY, "FindCoordinator", find, 4)))
    node: int = found.coordinators[0].node_id
    return node
