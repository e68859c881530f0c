"""Opening a damaged log again, once the metadata counts on other replicas of it.

Nothing is expected of it any more: all of it is walked with its checksums, and it ends before the
first batch that is not what was written. Where nothing of it can be used, because its first segment
is missing or it does not say whose it is, the directory is put aside for days (`strays`) and an
empty log takes its place. Everything here blocks.
"""

from __future__ import annotations

import logging

from tidelog.audit import audit
from tidelog.model import TopicPartition
from tidelog.storage.data_dir import DataDir
from tidelog.storage.inventory import Listed
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.partition_directory import STRAY, retired_name, topic_id_in
from tidelog.storage.recovery import Opening
from tidelog.storage.strays import note_since

logger = logging.getLogger(__name__)


def reopen(data_dir: DataDir, partition: TopicPartition, new: NewLog) -> Log:
    """The log with what is whole of it; OSError or StorageError where the disk refuses."""
    disk, directory = data_dir.context.disk, data_dir.directory_of(partition)
    listed = data_dir.inventory.entries.get(partition, Listed(new.topic_id))
    if disk.exists(f"{directory}/."):
        if topic_id_in(disk, directory) == new.topic_id:
            log = _open_what_is_whole(data_dir, partition, new, listed)
            if log is not None:
                return log
        _put_aside(data_dir, partition, directory)
    made = data_dir.create_logs({partition: new})[partition]
    if not isinstance(made, Log):
        raise made
    return made


def _open_what_is_whole(
    data_dir: DataDir, partition: TopicPartition, new: NewLog, listed: Listed
) -> Log | None:
    directory, context = data_dir.directory_of(partition), data_dir.context
    expected = Expectation(directory, log_start_offset=listed.log_start_offset)
    try:
        log = Log.open(Opening(partition, new, context, expected, clean=False))
    except OSError:
        raise
    except Exception as error:
        logger.warning("nothing can be used of directory=%s reason=%s", directory, error)
        return None
    if log.log_start_offset > listed.log_start_offset:
        logger.warning(
            "nothing is used of directory=%s reason=offsets %d to %d are missing at its start",
            directory, listed.log_start_offset, log.log_start_offset - 1,
        )  # fmt: skip
        log.abandon()
        return None
    try:
        context.disk.sync_all(data_dir.path)
    except OSError:
        log.abandon()
        raise
    log.checkpointed_watermark = max(
        min(listed.high_watermark, log.log_end_offset), log.log_start_offset
    )
    audit(
        "damaged log opened with what is whole of it, the rest is fetched",
        directory=directory,
        log_end_offset=log.log_end_offset,
        records_cut_off=log.repairs.truncated_offsets,
    )
    return log


def _put_aside(data_dir: DataDir, partition: TopicPartition, directory: str) -> None:
    context = data_dir.context
    note_since(context.disk, directory, context.clock.wall_ms())
    target = f"{data_dir.path}/{retired_name(partition, context.random.uuid(), STRAY)}"
    context.disk.rename(directory, target)
    audit(
        "damaged partition put aside, all of it is fetched", directory=directory, renamed_to=target
    )
