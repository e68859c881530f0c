"""The seams in one value, handed down from `server/broker.py` to whoever needs one of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.host.clock import Clock, SystemClock
from tidelog.host.disk import Disk, SystemDisk
from tidelog.host.network import Network, SystemNetwork
from tidelog.host.offload import Offload, ThreadOffload
from tidelog.host.random import Random, SystemRandom


@dataclass(slots=True)
class Host:
    """Everything through which chance enters a broker."""

    clock: Clock
    disk: Disk
    offload: Offload
    random: Random
    network: Network = field(default_factory=SystemNetwork)


def system_host(name: str, threads: int = 4) -> Host:
    """The real machine; `name` labels the threads."""
    return Host(SystemClock(), SystemDisk(), ThreadOffload(name, threads), SystemRandom())
