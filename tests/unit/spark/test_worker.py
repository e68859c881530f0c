"""A worker of Spark leaves what it has loaded out of garbage collection, once."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tidelog.spark import worker


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
