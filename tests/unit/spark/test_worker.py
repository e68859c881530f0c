"""What a worker of Spark does once: less garbage collection, memory kept for the next answer."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidelog.spark.launch import worker


@pytest.fixture(autouse=True)
def _thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker, "_settled", False)
    yield
    gc.unfreeze()


def test_what_is_loaded_is_not_collected_and_what_comes_later_is() -> None:
    worker.settle()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    later: list[object] = []
    later.append(later)
    del later
    assert gc.collect() >= 1
    worker.settle()
    assert gc.get_freeze_count() <= frozen


def test_memory_of_an_answer_is_used_again_and_not_mapped_anew() -> None:
    """Three answers at once would be 12,000 pages each time."""
    script = """
import resource
from tidelog.spark.launch.worker import settle

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def answers():
    for _ in range(20):
        several = [bytearray(16 << 20) for _ in range(3)]
        several.clear()

settle()
answers()
before = faults()
answers()
print(faults() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1000
