"""Real brokers inside a test: `with Broker() as broker: ...`, a `Cluster`, pytest fixtures, and
`simulate`, which runs them on a network and disks in memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker
    from tidelog.testing.cluster import Cluster
    from tidelog.testing.security import Security
    from tidelog.testing.simulation.simulate import SimulatedCluster, simulate
    from tidelog.testing.virtual_clock import VirtualClock
    from tidelog.testing.zookeeper import ZooKeeper

__all__ = [
    "Broker",
    "Cluster",
    "Security",
    "SimulatedCluster",
    "VirtualClock",
    "ZooKeeper",
    "simulate",
]

_MODULES = {
    "Broker": "tidelog.testing.broker",
    "Cluster": "tidelog.testing.cluster",
    "Security": "tidelog.testing.security",
    "SimulatedCluster": "tidelog.testing.simulation.simulate",
    "VirtualClock": "tidelog.testing.virtual_clock",
    "ZooKeeper": "tidelog.testing.zookeeper",
    "simulate": "tidelog.testing.simulation.simulate",
}


def __getattr__(name: str) -> object:
    # Imported on use: the pytest plugin is loaded by every test run of whoever installs Tidelog.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
