"""Markers that come again, late, or from a coordinator that was deposed long ago."""

from __future__ import annotations

import pytest

from tests.unit.storage.helpers import (
    NOW_MS,
    World,
    admitted,
    append,
    close,
    flush,
    transactional,
)
from tests.unit.storage.test_producers import DAY_MS, refused
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode
from tidelog.protocol.batches import CONTROL_ABORT, CONTROL_COMMIT, encode_control_batch
from tidelog.storage import producers
from tidelog.storage.admission import Admitted
from tidelog.storage.log import Log
from tidelog.storage.verification import Origin
from tidelog.testing.disk import CrashMode

V1 = Origin(from_client=False, transaction_version=1)
V2 = Origin(from_client=False, transaction_version=2)
FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED


def marker(epoch: int, coordinator: int, kind: int = CONTROL_COMMIT, producer: int = 7) -> Admitted:
    return admitted(
        encode_control_batch(
            kind, producer_id=producer, producer_epoch=epoch, coordinator_epoch=coordinator,
            timestamp=NOW_MS,
        )
    )  # fmt: skip


def end(log: Log, item: Admitted, origin: Origin, now_ms: int = NOW_MS) -> None:
    log.append(item, 0, now_ms, origin)


@pytest.mark.parametrize("kind", [CONTROL_COMMIT, CONTROL_ABORT])
def test_kafka_19999_a_marker_of_version_2_that_comes_again_succeeds(kind: int) -> None:
    """Else its coordinator, or the next one, asks for ever: the epoch is not greater any more."""
    log = World().open()
    append(log, transactional(0))
    end(log, marker(1, 1, kind), V2)
    for coordinator in (1, 1, 2):
        end(log, marker(1, coordinator, kind), V2)
    assert log.producers.states[7].transaction_first_offset == -1
    # While the next transaction is open it would end that one: then it is refused.
    append(log, transactional(0, epoch=1))
    assert refused(log, marker(1, 2, kind), V2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_kafka_9144_a_marker_is_a_sign_of_life() -> None:
    """Else a producer expires a day after its data, and with it which coordinator is the last."""
    world = World(config=TopicConfig(producer_id_expiration_ms=DAY_MS))
    log = world.open()
    append(log, transactional(0))
    world.run_for(DAY_MS - 1)
    end(log, marker(0, 5), V1, world.clock.now_ms)
    world.run_for(DAY_MS - 1)
    log.apply_retention(world.clock.now_ms, 0)
    assert refused(log, marker(0, 4), V1) is FENCED
    close(log)
    log = world.open(clean=True, recovery_point=2)
    assert refused(log, marker(0, 4), V1) is FENCED
    flush(log)
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
    assert refused(log, marker(0, 4), V1) is FENCED
    end(log, marker(0, 5), V1)


def test_kafka_9144_coordinator_epochs_do_not_fall_when_a_producer_has_expired() -> None:
    world = World(config=TopicConfig(producer_id_expiration_ms=DAY_MS))
    log = world.open()
    append(log, transactional(0))
    end(log, marker(0, 5), V1)
    world.run_for(DAY_MS)
    log.apply_retention(world.clock.now_ms, 0)
    assert not log.producers.states
    assert refused(log, marker(0, 4, CONTROL_ABORT), V1) is FENCED
    # Its producer writes again; the coordinator of long ago does not end that.
    append(log, transactional(3))
    assert refused(log, marker(0, 4, CONTROL_ABORT), V1) is FENCED
    end(log, marker(0, 6), V1)
    assert log.producers.states[7].coordinator_epoch == 6


def test_of_expired_producers_only_so_many_are_remembered() -> None:
    world = World(config=TopicConfig(producer_id_expiration_ms=DAY_MS))
    log = world.open()
    many = producers._FORGOTTEN_MAX + 5
    for producer in range(many):
        end(log, marker(0, 5, producer=producer), V1)
    world.run_for(DAY_MS)
    log.apply_retention(world.clock.now_ms, 0)
    assert not log.producers.states
    assert len(log.producers._forgotten) == producers._FORGOTTEN_MAX
    assert refused(log, marker(0, 4, producer=many - 1), V1) is FENCED
    end(log, marker(0, 4, producer=0), V1)
