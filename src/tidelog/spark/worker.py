"""What a Python worker of Spark does once in its life."""

from __future__ import annotations

import gc

_settled = False


def settle() -> None:
    """Leave what is loaded by now out of garbage collection.

    Spark collects all garbage of a worker after each of its tasks, and a worker takes a task of
    each micro-batch: walking through all of PySpark and Arrow is 40 ms that find nothing.
    """
    global _settled  # noqa: PLW0603 - a fact about this process
    if not _settled:
        _settled = True
        gc.collect()
        gc.freeze()
