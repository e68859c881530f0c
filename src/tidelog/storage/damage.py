"""Damage in a segment: bytes that are not the ones that were written, as their checksums tell.

`check` walks whole batches with their checksums and blocks; it changes nothing. `mark` has a
segment remember what was found: from then on nothing of it leaves the broker, and whoever mends
logs is told. A mark is gone with its segment, which a follower drops and fetches again.

What a checksum does not cover (where a batch begins, its epoch) is held to its neighbours, at the
end of a segment to where the next one begins, and epochs to what is written down of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from tidelog._kernels.batch_rows import BASE_OFFSET, LEADER_EPOCH, POSITION, ROW_FIELDS
from tidelog._kernels.batch_walk import EPOCH, FAULT_MESSAGES, OFFSET
from tidelog.errors import StorageError
from tidelog.storage.scan import Extent, Stretch, header_at, stretches

if TYPE_CHECKING:
    from tidelog.storage.segment import Segment


_BEYOND = "its last batch claims offsets that are the next segment's"
# Of two batches that contradict each other, either may be the damaged one.
_EITHER = {FAULT_MESSAGES[OFFSET], FAULT_MESSAGES[EPOCH], _BEYOND}


class DamagedBatchError(StorageError):
    """A reader asks for bytes that are not the ones that were written."""


class Damage(NamedTuple):
    """Where a segment is damaged: from a byte up to where the next batch begins."""

    start: int
    end: int
    fault: str


class Checked(NamedTuple):
    """How far a check went, the offset that follows, and what it found there."""

    end: int
    next_offset: int
    damage: Damage | None = None


def check(
    segment: Segment,
    begin: Checked,
    end: int,
    bytes_max: int,
    epochs: Sequence[tuple[int, int]] = (),
) -> Checked:
    """Check batches from where the last check ended, about `bytes_max` of them. Blocks.

    `end` is a batch boundary, or the end of the segment. With the leader epochs of the log and
    where they begin, those of the batches are held to them. OSError where the disk cannot be read.
    """
    assert begin.end <= end, f"{begin.end} lies behind {end} in {segment.log_file.path}"
    position, next_offset, fault = begin.end, begin.next_offset, ""
    last = position
    is_whole = end == segment.size_bytes
    expected = segment.next_offset
    with segment.log_file as fd:
        extent = Extent(segment.disk, fd, position, end, next_offset)
        for stretch in stretches(extent, verify=True):
            position, next_offset, fault = stretch.end, stretch.next_offset, stretch.fault
            if stretch.count:
                last = stretch.rows[(stretch.count - 1) * ROW_FIELDS + POSITION]
            strange = _of_another_epoch(stretch, epochs) if epochs else None
            if strange is not None:
                position, fault = strange, "its leader epoch is not the one that was written down"
            if fault or position - begin.end >= bytes_max:
                break
        else:
            if position < end:
                fault = "the file is shorter than it was"
            elif is_whole and next_offset > expected:
                fault = _BEYOND
        if not fault:
            return Checked(position, next_offset)
        damage = _damage(segment, fd, position, end, fault)
        if fault in _EITHER:
            damage = damage._replace(start=last)
        return Checked(position, next_offset, damage)


def _of_another_epoch(stretch: Stretch, epochs: Sequence[tuple[int, int]]) -> int | None:
    """Where the first batch begins whose epoch is another than its offset's."""
    starts = [start for _, start in epochs]
    rows = stretch.rows
    for at in range(0, stretch.count * ROW_FIELDS, ROW_FIELDS):
        place = bisect_right(starts, rows[at + BASE_OFFSET]) - 1
        if place >= 0 and epochs[place][0] != rows[at + LEADER_EPOCH]:
            return rows[at + POSITION]
    return None


def _damage(segment: Segment, fd: int, position: int, end: int, fault: str) -> Damage:
    """The damaged batch alone where its length can be believed: a batch follows, or the end."""
    header = header_at(segment.disk, fd, position)
    if header is not None and 0 < header.size_bytes <= end - position:
        behind = position + header.size_bytes
        following = header_at(segment.disk, fd, behind)
        if behind == end or (following is not None and following.size_bytes <= end - behind):
            return Damage(position, behind, fault)
    return Damage(position, max(end, position + 1), fault)


def mark(segment: Segment, damage: Damage) -> None:
    """Have nothing of it served any more; safe on any thread."""
    if damage not in segment.damaged:
        segment.damaged = (*segment.damaged, damage)
        segment.context.on_damage(segment)


def end_before_damage(segment: Segment, position: int, end: int) -> int:
    """How far a reader may read from a batch boundary up to another one."""
    for damage in segment.damaged:
        if damage.start < end and damage.end > position:
            end = max(damage.start, position)
    return end


def refuse(segment: Segment, position: int) -> NoReturn:
    """For who asks for the damaged batch itself, or for one behind which nothing is certain."""
    fault = next((each.fault for each in segment.damaged if each.end > position), "")
    raise DamagedBatchError(f"{segment.log_file.path} is damaged at byte {position}: {fault}")
