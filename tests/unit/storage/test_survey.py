"""A look through a stopped broker's directory: what it holds, and nothing is changed by it."""

from __future__ import annotations

import pytest

from tests.unit.storage.helpers import PARTITION, TOPIC_ID, append, batch, flush, idempotent
from tests.unit.storage.test_life import NEW, lived, started
from tidelog.errors import StorageError
from tidelog.storage.data_dir import DataDir
from tidelog.storage.survey import survey
from tidelog.testing.disk import CrashMode

DATA = "/data"


def test_a_copy_is_known_by_the_epoch_of_its_last_record_and_its_end() -> None:
    world, data_dir, log = lived()
    append(log, batch(2), epoch=4)
    append(log, idempotent(0, producer_id=4711), epoch=4)
    data_dir.close({PARTITION: 5})
    world.restart()
    surveyed = survey(DATA, world.context, NEW.config)
    copy = surveyed.copies[PARTITION]
    assert (copy.topic_id, copy.last_epoch, copy.end_offset) == (TOPIC_ID, 4, 6)
    assert (copy.high_watermark, copy.damage) == (5, "")
    assert surveyed.last_producer_id == 4711
    assert surveyed.identity.node_id == 4
    surveyed.close()


def test_a_clean_directory_is_as_clean_afterwards_and_another_user_is_kept_out() -> None:
    world, data_dir, _ = lived(epoch=5)
    data_dir.close()
    world.restart()
    surveyed = survey(DATA, world.context, NEW.config)
    assert surveyed.intact_epoch == 5
    with pytest.raises(StorageError, match="in use"):
        DataDir.open(DATA, world.context)
    surveyed.close()
    again = started(world)
    assert (again.was_clean, again.life.intact_epoch) == (True, 5)
    assert again.logs[PARTITION].log_end_offset == 3


@pytest.mark.parametrize(
    ("mode", "epoch", "end"), [(CrashMode.KEEP_ALL, 5, 5), (CrashMode.LOSE_ALL, -1, 3)]
)
def test_what_a_crash_left_is_recovered_and_a_loss_stays_one(
    mode: CrashMode, epoch: int, end: int
) -> None:
    world, data_dir, log = lived(epoch=5)
    flush(log)
    data_dir.checkpoint(None).run()
    append(log, batch(2))
    world.disk = world.disk.crash(mode)
    world.restart()
    surveyed = survey(DATA, world.context, NEW.config)
    assert (surveyed.intact_epoch, surveyed.copies[PARTITION].end_offset) == (epoch, end)
    surveyed.close()
    again = started(world)
    assert (again.life.intact_epoch, again.logs[PARTITION].log_end_offset) == (epoch, end)


def test_what_is_missing_or_says_nothing_of_itself_is_told() -> None:
    world, data_dir, _ = lived()
    data_dir.close()
    world.restart()
    world.disk.rename(f"{DATA}/orders-0", f"{DATA}/nameless-7")
    world.disk.unlink(f"{DATA}/nameless-7/partition.metadata")
    surveyed = survey(DATA, world.context, NEW.config)
    assert "the directory is missing" in surveyed.copies[PARTITION].damage
    assert surveyed.nameless == [f"{DATA}/nameless-7"]
    surveyed.close()
    # Nothing was made in its place, and nothing was put aside.
    assert not world.disk.exists(f"{DATA}/orders-0")
    assert world.disk.exists(f"{DATA}/nameless-7/.")


def test_a_directory_of_nobody_is_refused_and_left_as_it_is() -> None:
    world, _, _ = lived()
    world.disk.make_dir("/elsewhere")
    with pytest.raises(StorageError, match="not the data directory of a broker"):
        survey("/elsewhere", world.context, NEW.config)
    assert not world.disk.list_dir("/elsewhere")
