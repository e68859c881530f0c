"""A real broker inside a test: `with Broker() as broker: ...` and pytest fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    # Imported on use: the pytest plugin is loaded by every test run of whoever installs Tidelog.
    if name == "Broker":
        from tidelog.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
