"""How much the logs hold, as commands ask for it and show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.client import replica_admin
from tidelog.client.blocking import Client
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024


def led_sizes(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The bytes of each partition at its leader; a broker that does not say is left out."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for each in partitions:
        by_leader.setdefault(client.cluster.leader(*each), []).append(each)
    found: dict[TopicPartition, int] = {}
    for broker, led in by_leader.items():
        found |= _sizes(client, broker, led) or {}
    return found


def broker_sizes(client: Client, brokers: Sequence[int]) -> dict[int, int]:
    """The bytes of all replicas that each broker holds; a broker that does not say is left out."""
    held = {broker: _sizes(client, broker, None) for broker in brokers}
    return {broker: sum(sizes.values()) for broker, sizes in held.items() if sizes is not None}


def _sizes(
    client: Client, broker: int, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, int] | None:
    """None if the broker refuses: sizes take Describe on the cluster, the rest does not."""
    try:
        return client.run(replica_admin.log_sizes(client.cluster, broker, partitions))
    except TidelogError:
        return None


def shown_size(size_bytes: int | None) -> str | None:
    """A size with three digits or so, such as 1.2 GiB; None stays None."""
    if size_bytes is None:
        return None
    value, unit = float(size_bytes), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return (
        f"{value:.0f} {_UNITS[unit]}"
        if unit == 0 or value >= 100
        else f"{value:.1f} {_UNITS[unit]}"
    )
