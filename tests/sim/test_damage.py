"""Three real brokers on simulated machines: damage on one disk is mended from another one.

S3 is a flipped bit in a closed segment, of a leader, of a follower, and of a follower that leads
before anybody has found it.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from tests.sim.three import Three, simulate
from tidelog.errors import KafkaError, StorageError
from tidelog.model import Isolation
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.replication.partition import Partition
from tidelog.server.parts import Parts

SCRUBBED = {"log.scrub.interval.ms": "2000"}
UNSCRUBBED = {"log.scrub.interval.ms": "0"}
SEGMENTS = 4
RECORDS = 10 * SEGMENTS
ALL = {0, 1, 2}
LONG = os.environ.get("TIDELOG_LONG") == "1"


def parts(three: Three, broker_id: int) -> Parts:
    broker = three.machines[broker_id].broker
    assert broker is not None
    return broker.parts


def replica(three: Three, broker_id: int) -> Partition:
    return parts(three, broker_id).replicas.find("t", 0)


async def fill(three: Three, *replicas: int) -> None:
    """Segments of ten records each, on all replicas."""
    await three.create({0: list(replicas)}, segment_ms="500")
    for _ in range(SEGMENTS):
        await three.produce(10)
        await asyncio.sleep(1)
    await three.until(lambda: replica_ends(three, replicas) == {RECORDS})
    assert len(replica(three, replicas[0]).log.segments) == SEGMENTS


def replica_ends(three: Three, replicas: tuple[int, ...]) -> set[int]:
    up = [each for each in replicas if three.machines[each].is_up]
    return {replica(three, each).log.log_end_offset for each in up}


def flip_a_bit(three: Three, broker_id: int, base_offset: int = 10) -> None:
    """In the middle of a segment's second batch, where its records are."""
    disk = three.machines[broker_id].disk
    path = f"{parts(three, broker_id).data_dir.path}/t-0/{base_offset:020d}.log"
    disk.corrupt(path, disk.file_size(path) // 10 + 65)


def stored(three: Three, broker_id: int) -> bytes:
    """The bytes of a replica, whatever they are."""
    disk, log = three.machines[broker_id].disk, replica(three, broker_id).log
    return b"".join(disk.content(each.log_file.path)[: each.size_bytes] for each in log.segments)


async def mended(three: Three, broker_id: int) -> None:
    """Once the replica is whole: counted, in sync, and the same as the others."""
    mending = parts(three, broker_id).mending
    await three.until(lambda: mending.repaired == 1)
    await three.until(lambda: set(three.state().isr) == ALL)
    assert (mending.found, mending.damaged) == (1, {})
    assert len({stored(three, each) for each in ALL}) == 1
    log = replica(three, broker_id).log
    assert log.log_end_offset == RECORDS
    slices = log.read(0, 1 << 20, log.end_position)
    assert slices.read_all() == stored(three, broker_id)
    slices.release()


def audited(caplog: pytest.LogCaptureFixture, first_words: str) -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.name == "tidelog.audit"]
    return [each for each in found if each.startswith(first_words)]


def test_s3_a_flipped_bit_of_a_leader_is_mended_from_the_next_leader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(three: Three) -> None:
        await fill(three, 1, 2, 0)
        good = stored(three, 1)
        flip_a_bit(three, 1)
        assert stored(three, 1) != good
        await three.until(lambda: three.state().leader == 2)
        await mended(three, 1)
        assert stored(three, 1) == good
        (found,) = audited(caplog, "damage found in a log")
        assert "partition=t-0 " in found and "00000000000000000010.log" in found
        (dropped,) = audited(caplog, "dropped a damaged part")
        assert dropped.endswith("leader=2 first_offset=10 last_offset=39")

    simulate(script, SCRUBBED)


def test_s3_a_flipped_bit_of_a_follower_is_mended_and_its_leader_goes_on() -> None:
    async def script(three: Three) -> None:
        await fill(three, 1, 2, 0)
        good, epoch = stored(three, 2), three.state().leader_epoch
        flip_a_bit(three, 2)
        await mended(three, 2)
        assert stored(three, 2) == good
        # In a new epoch: what it had shown before does not get it in sync.
        assert (three.state().leader, three.state().leader_epoch) == (1, epoch + 1)
        await three.produce(5)

    simulate(script, SCRUBBED)


def test_s3_a_replica_that_leads_with_damage_gives_up_and_is_mended() -> None:
    """The damage is there before the replica leads, and nobody knows of it."""

    async def script(three: Three) -> None:
        await fill(three, 1, 2, 0)
        good = stored(three, 2)
        flip_a_bit(three, 2)
        three.machines[1].kill()
        await three.until(lambda: three.state().leader == 2)
        # A follower that begins anew cannot use what it is given: the leader looks into its log.
        three.machines[0].wipe()
        await three.until(lambda: 0 not in parts(three, 2).metadata.image.brokers)
        await three.machines[0].start()
        await three.until(lambda: bool(parts(three, 2).mending.damaged))
        state = parts(three, 2).metadata.image.partition("t", 0)
        # Nobody else has it all: it goes on, and the one who has may come back.
        assert state is not None and (state.leader, state.isr) == (2, (2,))
        with pytest.raises(StorageError):
            replica(three, 2).read(11, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True)
        await three.machines[1].start()
        await mended(three, 2)
        assert stored(three, 2) == stored(three, 1) == good
        assert parts(three, 0).mending.found == 0

    simulate(script, UNSCRUBBED)


def test_a_sole_replica_serves_all_but_its_damage() -> None:
    async def script(three: Three) -> None:
        await fill(three, 1)
        flip_a_bit(three, 1)
        mending = parts(three, 1).mending
        await three.until(lambda: bool(mending.damaged))
        await asyncio.sleep(5)
        partition = replica(three, 1)
        assert partition.leads and (mending.found, mending.repaired) == (1, 0)

        def bytes_from(offset: int) -> int:
            read = partition.read(offset, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True)
            assert read.slices is not None
            size = len(read.slices.read_all())
            read.slices.release()
            return size

        told = {"t-0": "there is no other replica to mend it from"}
        assert {str(key): what for key, what in mending.damaged.items()} == told
        # As `tidelog cluster health` asks for it.
        answer = await three.ask(MetadataRequest(topics=None), node=1)
        (state,) = next(each for each in answer.topics if each.name == "t").partitions
        assert state.offline_replicas == [1]
        assert bytes_from(0) < bytes_from(12) < bytes_from(10) + bytes_from(12)
        with pytest.raises(KafkaError, match=r"damaged at byte \d+: the batch does not match"):
            bytes_from(11)
        await three.produce(1)

    simulate(script, SCRUBBED)


@pytest.mark.parametrize("gone", ["a bit", "the first segment", "its name"])
def test_a_log_that_cannot_be_opened_is_fetched_from_its_leader(
    gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Found at a start: what is whole is kept, and where nothing is, all is copied."""

    async def script(three: Three) -> None:
        await fill(three, 1, 2, 0)
        good = stored(three, 1)
        directory = f"{parts(three, 1).data_dir.path}/t-0"
        await three.machines[1].stop()
        disk = three.machines[1].disk
        if gone == "a bit":
            path = f"{directory}/{RECORDS - 10:020d}.log"
            disk.corrupt(path, disk.file_size(path) // 2 + 65)
            # The last segment is walked where its index does not fit.
            disk.unlink(path.replace(".log", ".index"))
            disk.unlink(path.replace(".log", ".timeindex"))
        elif gone == "the first segment":
            disk.unlink(f"{directory}/{0:020d}.log")
        else:
            disk.unlink(f"{directory}/partition.metadata")
        three.machines[1].settings |= UNSCRUBBED
        await three.machines[1].start()
        await mended(three, 1)
        assert stored(three, 1) == good
        if gone != "a bit":
            (aside,) = audited(caplog, "damaged partition put aside")
            assert aside.endswith("-stray")

    simulate(script, UNSCRUBBED)


def test_a_damaged_log_stays_in_place_while_only_it_has_the_records() -> None:
    async def script(three: Three) -> None:
        await fill(three, 1, 2, 0)
        for other in (2, 0):
            await three.machines[other].stop()
        flip_a_bit(three, 1)
        mending = parts(three, 1).mending
        await three.until(lambda: bool(mending.damaged))
        await asyncio.sleep(5)
        assert replica(three, 1).leads and replica(three, 1).log.log_end_offset == RECORDS
        for other in (2, 0):
            await three.machines[other].start()
        await mended(three, 1)

    simulate(script, SCRUBBED)


def damage_anything(three: Three, broker_id: int, chance: random.Random) -> None:
    """Any bit of any segment of a broker's log."""
    disk, log = three.machines[broker_id].disk, replica(three, broker_id).log
    path = chance.choice([each.log_file.path for each in log.segments if each.size_bytes])
    disk.corrupt(path, chance.randrange(disk.file_size(path)), 1 << chance.randrange(8))


def is_whole(three: Three) -> bool:
    """Whether all replicas are in sync, the same, and known to be undamaged."""
    if not all(machine.is_serving for machine in three.machines):
        return False
    if set(three.state().isr) != ALL or len({stored(three, each) for each in ALL}) > 1:
        return False
    return not any(parts(three, each).mending.damaged for each in ALL)


@pytest.mark.parametrize("seed", range(40 if LONG else 4))
def test_s3_whatever_bit_flips_and_whoever_goes_meanwhile_all_is_mended(seed: int) -> None:
    async def script(three: Three) -> None:
        chance = random.Random(seed)
        await fill(three, *chance.sample(range(3), 3))
        struck = 0
        for _ in range(4):
            good = stored(three, three.state().leader)
            damaged, other = chance.sample(range(3), 2)
            damage_anything(three, damaged, chance)
            what = chance.choice(("nothing", "a kill", "a stop", "a restart"))
            if what == "a kill":
                three.machines[other].kill()
                await three.machines[other].start()
            elif what == "a stop":
                await three.machines[other].stop()
                await three.machines[other].start()
            elif what == "a restart":
                await three.machines[damaged].stop()
                await three.machines[damaged].start()
            await three.produce(3)
            await three.until(lambda: is_whole(three))
            assert stored(three, 0).startswith(good), what
            struck += 1
        assert struck == 4

    simulate(script, SCRUBBED)
