"""What a Python worker of Spark does once in its life."""

from __future__ import annotations

import ctypes
import gc
import sys

# Of `mallopt(3)`: from which size on memory is mapped anew for each use, and how much that is free
# at the end of the heap stays there. Above the fetched answers and the columns made of them.
_TRIM_THRESHOLD, _TRIM_BYTES = -1, 64 << 20
_MMAP_THRESHOLD, _MMAP_BYTES = -3, 32 << 20

_settled = False


def settle() -> None:
    """Make a process that only read a few rows until now ready to read many."""
    global _settled  # noqa: PLW0603 - a fact about this process
    if not _settled:
        _settled = True
        _leave_out_of_collection()
        _keep_freed_memory()


def _leave_out_of_collection() -> None:
    """Let garbage collection pass over what is loaded by now.

    Spark collects all garbage of a worker after each of its tasks, and a worker takes a task of
    each micro-batch: walking through all of PySpark and Arrow is 40 ms that find nothing.
    """
    gc.collect()
    gc.freeze()


def _keep_freed_memory() -> None:
    """Let the next answer reuse the pages of the last one.

    Given back to the system they come back cleared, page by page, which is a tenth of the
    processor time of reading large records.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)
