"""Tidelog: a partitioned, replicated commit log that speaks Kafka's wire protocol.

`tidelog.read` and `tidelog.scan` (topics as Arrow tables) are imported when they are first used:
they need pyarrow, and nothing else here does.
"""

from typing import TYPE_CHECKING

from tidelog.version import VERSION as __version__

if TYPE_CHECKING:
    from tidelog.arrow.read import read, scan

__all__ = ["__version__", "read", "scan"]


def __getattr__(name: str) -> object:
    if name not in ("read", "scan"):
        raise AttributeError(f"module 'tidelog' has no attribute '{name}'")
    try:
        from tidelog.arrow import read as module
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ImportError(f"tidelog.{name} needs pyarrow: pip install 'tidelog[arrow]'") from error
    return getattr(module, name)
