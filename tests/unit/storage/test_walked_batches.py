"""Many batches learned at once: what one batch after the other would have taught, in both forms."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.unit.kernels.forms import BATCH_WALK_FORMS
from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    World,
    marker,
)
from tidelog.protocol.batches import BatchHeader, write_header
from tidelog.storage import replay, scan, segment
from tidelog.storage.producers import ProducerStates
from tidelog.storage.replay import Replay, replay_batch
from tidelog.storage.scan import Extent, stretches
from tidelog.storage.segment import Segment

SEGMENT = f"{DIRECTORY}/{0:020d}.log"
LIVES = 40


@pytest.fixture(params=BATCH_WALK_FORMS, autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (replay, scan, segment):
        monkeypatch.setattr(module, "kernel", BATCH_WALK_FORMS[request.param])


def headers_of_a_life(chance: random.Random) -> Iterator[tuple[BatchHeader, bool]]:
    """Batches as producers, or damage, may have left them; True where it is to be a marker."""
    offset = 0
    for _ in range(chance.choice((1, 6, 40, 300))):
        offset += chance.choice((0, 0, 0, 7))
        delta = chance.choice((0, 0, 3))
        producer_id = chance.choice((-1, 0, 1, 2, 64, 1 << 40))
        is_marker = producer_id >= 0 and chance.random() < 0.1
        emptied = producer_id >= 0 and chance.random() < 0.05
        header = BatchHeader(
            offset,
            leader_epoch=0,
            # A control batch that is not made a marker is one that compaction has emptied.
            attributes=0x30 if is_marker or emptied else chance.choice((0, 0, 0x10)),
            last_offset_delta=0 if is_marker else delta,
            max_timestamp=chance.choice((-1, NOW_MS, NOW_MS + chance.randrange(10_000))),
            producer_id=producer_id,
            producer_epoch=chance.choice((0, 0, 0, 1)) if producer_id >= 0 else -1,
            base_sequence=offset if producer_id >= 0 else -1,
            record_count=0 if emptied else chance.choice((0, delta + 1)),
        )
        yield header, is_marker
        offset += header.last_offset_delta + 1


def written(chance: random.Random, world: World) -> tuple[Segment, list[tuple[int, BatchHeader]]]:
    """A segment with such batches in its file, none of them noted."""
    data, placed = b"", []
    for header, is_marker in headers_of_a_life(chance):
        if is_marker:
            item = marker(
                chance.randrange(2), producer_id=header.producer_id, epoch=header.producer_epoch
            )
            content = bytearray(item.buffer)
            stored = item.header
            stored.base_offset, stored.leader_epoch = header.base_offset, 0
            write_header(content, 0, stored)
        else:
            content = bytearray(61 + (0 if header.is_control else chance.randrange(300)))
            stored = header
            stored.batch_length = len(content) - 12
            write_header(content, 0, stored)
        placed.append((len(data), stored))
        data += content
    world.open().abandon()
    world.disk.replace(SEGMENT, data)
    made = Segment(world.context, DIRECTORY, 0)
    return made, placed


def walked(made: Segment, size: int) -> Iterator[scan.Stretch]:
    fd = made.log_file.pin()
    yield from stretches(Extent(made.disk, fd, 0, size, 0), verify=False)
    made.log_file.unpin()


def knowledge(made: Segment) -> tuple[object, ...]:
    def entries(index: object) -> list[tuple[int, int]]:
        return [index._entry_at(place) for place in range(index.entries)]  # type: ignore[attr-defined]

    return (
        made.size_bytes, made.next_offset, made.first_timestamp, made.largest_timestamp,
        made.largest_timestamp_offset, made._unindexed_bytes, entries(made.offsets),
        entries(made.times),
    )  # fmt: skip


@pytest.mark.parametrize("interval", [0, 300, 4096])
def test_noting_a_stretch_is_noting_each_of_its_batches(interval: int) -> None:
    chance = random.Random(interval)
    indexed = 0
    for _ in range(LIVES):
        one_by_one, placed = written(chance, World())
        size = placed[-1][0] + placed[-1][1].size_bytes
        for _, header in placed:
            one_by_one.note(header, header.size_bytes, interval)
        at_once = Segment(World().context, DIRECTORY, 0)
        for stretch in walked(one_by_one, size):
            at_once.note_all(stretch, interval)
        assert knowledge(at_once) == knowledge(one_by_one)
        indexed += at_once.offsets.entries
    assert indexed > 50


def states(producers: ProducerStates) -> object:
    known = sorted(producers.states.values(), key=lambda state: state.producer_id)
    return known, producers._open, producers._undecided


@pytest.mark.parametrize("waiting_max", [4, 1 << 17])
def test_replaying_what_the_kernel_keeps_is_replaying_everything(
    waiting_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_WAITING_MAX", waiting_max)
    monkeypatch.setattr(replay, "_SLOTS_MAX", 64)
    replayed, batches, aborted = 0, 0, 0

    def counted(*given: object) -> None:
        nonlocal replayed
        replayed += 1
        replay_batch(*given)  # type: ignore[arg-type]

    chance = random.Random(waiting_max)
    for _ in range(LIVES):
        made, placed = written(chance, World())
        size = placed[-1][0] + placed[-1][1].size_bytes
        wanted = ProducerStates()
        for position, header in placed:
            if header.producer_id >= 0:
                replay_batch(made, position, header, wanted)
                batches += 1
        wanted_aborted = list(made.aborted.entries)
        made.aborted.reset()
        found = ProducerStates()
        learning = Replay(made, found)
        with monkeypatch.context() as patched:
            patched.setattr(replay, "replay_batch", counted)
            for stretch in walked(made, size):
                learning.take(stretch)
            learning.finish()
        assert states(found) == states(wanted)
        assert made.aborted.entries == wanted_aborted
        aborted += len(wanted_aborted)
    assert aborted > 50
    assert replayed < batches
