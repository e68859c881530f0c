"""Opening a damaged log again, once the metadata counts on other replicas of it.

Nothing is expected of it any more: all of it is walked with its checksums, and it ends before the
first segment in which something is not what was written. Whole segments, because no checksum covers
where a batch begins; for a segment, its name says so. Where nothing of it can be used, because its
first segment is damaged or missing or it does not say whose it is, the directory is put aside for
days (`strays`) and an empty log takes its place. Everything here blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidelog.audit import audit
from tidelog.model import TopicPartition
from tidelog.storage.damage import Checked, check
from tidelog.storage.data_dir import DataDir
from tidelog.storage.inventory import Listed
from tidelog.storage.log import Log
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.partition_directory import STRAY, retired_name, topic_id_in
from tidelog.storage.recovery import Opening, segment_bases
from tidelog.storage.segment import Segment
from tidelog.storage.strays import note_since
from tidelog.storage.swap import finish_swaps

logger = logging.getLogger(__name__)

_LARGEST_OFFSET = 2**63 - 1


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
        if not _drop_from_damage(context, directory):
            return None
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


def _drop_from_damage(context: LogContext, directory: str) -> bool:
    """Unlink the first damaged segment and all behind it; False where nothing would be left."""
    disk = context.disk
    bases = segment_bases(finish_swaps(disk, directory, disk.list_dir(directory)))
    for place, base in enumerate(bases):
        segment = Segment(context, directory, base)
        segment.size_bytes = context.disk.file_size(segment.log_file.path)
        is_last = place == len(bases) - 1
        segment.next_offset = _LARGEST_OFFSET if is_last else bases[place + 1]
        checked = check(segment, Checked(0, base), segment.size_bytes, segment.size_bytes)
        segment.close()
        if checked.damage is not None:
            return _drop_segments(context, directory, bases, place)
        if not is_last and checked.next_offset != bases[place + 1]:
            return _drop_segments(context, directory, bases, place + 1)
    return bool(bases)


def _drop_segments(context: LogContext, directory: str, bases: Sequence[int], place: int) -> bool:
    """The last one first: a crash leaves no hole."""
    for base in reversed(bases[place:] if place else ()):
        logger.warning("dropping a damaged segment directory=%s base_offset=%d", directory, base)
        Segment(context, directory, base).discard()
    return place > 0


def _put_aside(data_dir: DataDir, partition: TopicPartition, directory: str) -> None:
    context = data_dir.context
    note_since(context.disk, directory, context.clock.wall_ms())
    target = f"{data_dir.path}/{retired_name(partition, context.random.uuid(), STRAY)}"
    context.disk.rename(directory, target)
    audit(
        "damaged partition put aside, all of it is fetched", directory=directory, renamed_to=target
    )
