"""Real brokers inside a test: `with Broker() as broker: ...`, a `Cluster`, pytest fixtures."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker
    from tidelog.testing.cluster import Cluster
    from tidelog.testing.zookeeper import ZooKeeper

__all__ = ["Broker", "Cluster", "ZooKeeper"]

_MODULES = {
    "Broker": "tidelog.testing.broker",
    "Cluster": "tidelog.testing.cluster",
    "ZooKeeper": "tidelog.testing.zookeeper",
}


def __getattr__(name: str) -> object:
    # Imported on use: the pytest plugin is loaded by every test run of whoever installs Tidelog.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
