"""A lost store is made again from an old export and what the brokers' directories hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import wraps
from typing import Any
from uuid import UUID

import pytest

from tests.unit.cluster.helpers import ENDPOINTS, make_rules, start_controller
from tests.unit.cluster.test_moving import (
    Crash,
    Crashing,
    a_cluster,
    assert_secured,
    copy_of,
    session,
    start_on,
)
from tidelog.cluster import layout
from tidelog.cluster.exports import Export, decode_export, encode_export, read_export
from tidelog.cluster.image import BrokerRegistration, PartitionState
from tidelog.cluster.office import Place, take_office
from tidelog.cluster.rebuilding import Rebuilt, check_brokers, rebuild
from tidelog.cluster.registration import register_broker
from tidelog.cluster.restoring import RESTORING_HERE, restore
from tidelog.errors import StorageError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.storage.identity import DirectoryIdentity
from tidelog.storage.survey import Copy, Surveyed
from tidelog.store.port import Create, Set, Stored
from tidelog.testing.memory_store import MemoryStore, MemoryTree

OTHER = UUID(int=77)
TOMBSTONED = UUID(int=88)
Held = Mapping[str, Copy]


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(test(**fixtures))

    return run


async def exported() -> Export:
    """The export of two brokers with three topics of forty partitions and a deleted topic."""
    tree = await a_cluster()
    store = await tree.connect()
    await store.multi([Create(f"{layout.DELETED}/{TOMBSTONED.hex}", layout.encode(brokers=[0, 1]))])
    try:
        return await read_export(store)
    finally:
        await store.close()


@pytest.fixture(scope="module")
def export() -> Export:
    return asyncio.run(exported())


def directory(
    export: Export, broker: int, held: Held, *, epoch: int = 50, producer_id: int = -1
) -> Surveyed:
    """A directory with these partitions, `topic-0-3` and the like, and empty logs of all others."""
    copies = {
        TopicPartition(name, state.partition): Copy(topic.topic_id)
        for name, topic in export.image.topics.items()
        for state in topic.partitions
        if broker in state.replicas
    }
    for name, copy in held.items():
        topic, _, partition = name.rpartition("-")
        copies[TopicPartition(topic, int(partition))] = copy
    identity = DirectoryIdentity(export.image.cluster_id, broker, UUID(int=1000 + broker))
    return Surveyed(f"/data/{broker}", identity, epoch, copies, [], producer_id, close=lambda: None)


def with_copies(export: Export, *held: Held) -> Rebuilt:
    directories = [directory(export, broker, each) for broker, each in enumerate(held)]
    return rebuild(export, directories, ())


def state_of(rebuilt: Rebuilt, topic: str, partition: int = 0) -> PartitionState:
    nodes = {**rebuilt.nodes, layout.CONTROLLER_EPOCH: rebuilt.controller_epoch}
    tree = {path: Stored(value, 0, 0, 0, 0) for path, value in nodes.items()}
    return layout.load(tree).image.topics[topic].partitions[partition]


def log_of(export: Export, epoch: int, end: int, topic: str = "topic-0") -> Copy:
    return Copy(export.image.topics[topic].topic_id, epoch, end)


# -- the file -------------------------------------------------------------------------------------


def test_a_file_gives_back_what_was_exported(export: Export) -> None:
    data = encode_export(export)
    assert decode_export(data, "file") == export
    assert "/topics/topic-0" in json.loads(data)["nodes"]


def test_the_key_and_what_is_ephemeral_are_not_exported(export: Export) -> None:
    assert layout.CLUSTER_KEY not in export.nodes
    assert layout.CONTROLLER_OWNER not in export.nodes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda fields: fields["nodes"].pop("/topics/topic-0"), "checksum does not match"),
        (lambda fields: fields.update(format="else"), "not an export"),
        (lambda fields: fields.update(version=2), "use the version that wrote it"),
        (lambda fields: fields.pop("nodes"), "not an export"),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_refused(
    export: Export, change: object, words: str
) -> None:
    fields = json.loads(encode_export(export))
    assert callable(change)
    change(fields)
    with pytest.raises(StorageError, match=words):
        decode_export(json.dumps(fields).encode(), "file")
    with pytest.raises(StorageError, match="file is damaged"):
        decode_export(encode_export(export)[:-9], "file")


class Busy(MemoryStore):
    """A session whose reads of the tree meet a controller that writes, a few times."""

    writes = 3

    async def tree(self, path: str) -> Mapping[str, Stored]:
        tree = dict(await super().tree(path))
        if self.writes:
            self.writes -= 1
            value = layout.encode_meeting(epoch=1, number=1000 + self.writes)
            await self.multi([Set(layout.CONTROLLER_SEQUENCE, value)])
        return tree


@in_loop
async def test_an_export_is_of_one_moment_though_a_controller_writes() -> None:
    tree = await a_cluster()
    tree.revision += 1
    store = Busy(tree, tree.revision)
    tree.sessions[store.session] = store
    export = await read_export(store)
    assert store.writes == 0
    number = layout.decode("", export.nodes[layout.CONTROLLER_SEQUENCE])["number"]
    assert number == 1000


@in_loop
async def test_a_store_without_a_cluster_is_not_exported() -> None:
    with pytest.raises(StorageError, match="no cluster"):
        await read_export(await MemoryTree().connect())


# -- who leads ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logs", "eligible"),
    [
        # The longer log of the same epoch, the newer epoch though it is shorter, both if equal.
        (((4, 90), (4, 100)), (1,)),
        (((4, 100), (6, 90)), (1,)),
        (((6, 100), (6, 100)), (0, 1)),
        (((-1, 0), (0, 1)), (1,)),
    ],
)
def test_the_newest_logs_may_lead_and_nobody_is_in_sync(
    export: Export, logs: tuple[tuple[int, int], tuple[int, int]], eligible: tuple[int, ...]
) -> None:
    held = [{"topic-0-0": log_of(export, *each)} for each in logs]
    state = state_of(with_copies(export, *held), "topic-0")
    assert sorted(state.elr) == list(eligible)
    assert (state.isr, state.leader) == ((), NO_LEADER)
    assert set(eligible) <= set(state.replicas)


def test_an_older_log_does_not_lead_because_retention_emptied_the_newer_one(
    export: Export,
) -> None:
    emptied = log_of(export, -1, 100)._replace(high_watermark=100)
    stale = log_of(export, 3, 40)._replace(high_watermark=40)
    held = [{"topic-0-0": stale}, {"topic-0-0": emptied}]
    assert state_of(with_copies(export, *held), "topic-0").elr == (1,)


def test_epochs_are_beyond_those_of_the_export_and_of_every_log(export: Export) -> None:
    rebuilt = with_copies(
        export,
        {"topic-0-0": log_of(export, 4000, 10)},
        {"topic-0-0": log_of(export, 9000, 10)},
    )
    assert state_of(rebuilt, "topic-0").leader_epoch > 9000
    before = export.image.topics["topic-1"].partitions[0].leader_epoch
    assert state_of(rebuilt, "topic-1").leader_epoch > before
    epoch = layout.decode("", rebuilt.controller_epoch)["epoch"]
    assert epoch > export.image.controller_epoch + 100


def test_producer_ids_are_beyond_those_of_the_export_and_of_every_log(export: Export) -> None:
    for used in (0, export.image.next_producer_id + 10**12 + 1):
        rebuilt = rebuild(
            export,
            [directory(export, 0, {}, producer_id=used), directory(export, 1, {})],
            (),
        )
        next_id = layout.decode("", rebuilt.nodes[layout.PRODUCER_IDS])["next"]
        assert next_id > max(used, export.image.next_producer_id) + 10**6
        assert next_id % 1000 == 0


def test_a_copy_that_cannot_be_served_is_not_eligible(export: Export) -> None:
    damaged = log_of(export, 9, 100)._replace(damage="a segment is missing")
    (sole,) = [
        state for state in export.image.topics["topic-0"].partitions if state.replicas == (0,)
    ][:1]
    name = f"topic-0-{sole.partition}"
    rebuilt = with_copies(export, {name: damaged}, {name: log_of(export, 3, 40)})
    assert state_of(rebuilt, "topic-0", sole.partition).elr == (1,)
    alone = with_copies(export, {name: damaged}, {})
    state = state_of(alone, "topic-0", sole.partition)
    assert (state.elr, state.last_known_elr) == ((), (0,))
    assert alone.report.offline == {name: "a segment is missing"}


# -- what changed since the export ----------------------------------------------------------------


def test_replicas_that_were_moved_since_are_where_the_directories_are(export: Export) -> None:
    moved = next(
        each for each in export.image.topics["topic-0"].partitions if each.replicas == (0,)
    )
    name = TopicPartition("topic-0", moved.partition)
    first = directory(export, 0, {})
    first.copies = {key: copy for key, copy in first.copies.items() if key != name}
    second = directory(export, 1, {str(name): log_of(export, 3, 10)})
    state = state_of(rebuild(export, [first, second], ()), "topic-0", moved.partition)
    assert (state.replicas, state.elr) == ((1,), (1,))


def test_topics_and_partitions_created_since_come_back(export: Export) -> None:
    new = Copy(OTHER, 2, 5)
    rebuilt = with_copies(
        export,
        {"later-0": new, "later-2": new},
        {"later-0": new, "topic-0-41": log_of(export, 1, 1)},
    )
    assert rebuilt.report.found == ["later"]
    assert state_of(rebuilt, "later", 2).elr == (0,)
    # Nobody has this one, so it is a new one.
    assert state_of(rebuilt, "later", 1).elr == (0, 1)
    assert state_of(rebuilt, "topic-0", 41).elr == (1,)
    assert layout.decode("", rebuilt.nodes["/topics/later"])["id"] == OTHER.hex
    assert layout.decode("", rebuilt.nodes["/topics/topic-0"])["partitions"] == 42


def test_a_topic_that_no_directory_holds_is_left_out_unless_one_is_missing(export: Export) -> None:
    directories = [directory(export, broker, {}) for broker in range(2)]
    for each in directories:
        each.copies = {key: copy for key, copy in each.copies.items() if key.topic != "topic-2"}
    rebuilt = rebuild(export, directories, ())
    assert rebuilt.report.gone == ["topic-2"]
    assert "/topics/topic-2" not in rebuilt.nodes
    kept = rebuild(export, directories[:1], [1])
    assert "/topics/topic-2" in kept.nodes
    assert any("no directory has it" in why for why in kept.report.offline.values())


def test_directories_that_make_no_topic_are_named(export: Export) -> None:
    first = directory(
        export, 0, {"later-0": Copy(OTHER, 2, 5), "deleted-0": Copy(TOMBSTONED, 1, 1)}
    )
    first.nameless.append("/data/0/foreign-0")
    lost = Copy(OTHER, damage="the directory is missing")
    second = directory(export, 1, {"later-0": Copy(UUID(int=5), 2, 5), "lost-0": lost})
    report = rebuild(export, [first, second], ()).report
    assert report.found == []
    assert set(report.left_alone) == {
        "/data/0/foreign-0", "/data/0/later-0", "/data/1/later-0", "/data/1/lost-0",
    }  # fmt: skip


def test_another_id_for_an_exported_topic_is_refused(export: Export) -> None:
    with pytest.raises(
        StorageError, match=r"topic-0 with the id .* created again after the export"
    ):
        with_copies(export, {"topic-0-0": Copy(OTHER, 1, 1)}, {})


# -- which directories ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clusters", "without", "words"),
    [
        ({"/a": ("other", 0), "/b": ("", 1)}, (), "/a belongs to cluster other"),
        ({"/a": ("", 0), "/b": ("", 0)}, (), "/a and /b are both of broker 0"),
        ({"/a": ("", 0)}, (), "not named: 1.*add --without 1"),
        ({"/a": ("", 0)}, (1,), None),
        ({"/a": ("", 0), "/b": ("", 1), "/c": ("", 7)}, (), None),
    ],
)
def test_directories_must_be_all_of_the_cluster_and_each_once(
    export: Export,
    clusters: Mapping[str, tuple[str, int]],
    without: Collection[int],
    words: str | None,
) -> None:
    named = {path: (name or export.image.cluster_id, n) for path, (name, n) in clusters.items()}
    if words is None:
        check_brokers(export, named, without)
        return
    with pytest.raises(StorageError, match=words):
        check_brokers(export, named, without)


# -- the store ------------------------------------------------------------------------------------


@in_loop
async def test_a_crash_at_any_step_leaves_a_store_that_no_broker_starts_with(
    export: Export,
) -> None:
    rebuilt = with_copies(export, {}, {})
    steps = 0
    for after in (False, True):
        for number in range(1, 100):
            tree = MemoryTree()
            Crashing.left, Crashing.after = number, after
            try:
                await restore(session(tree), rebuilt)
                break
            except Crash:
                steps += 1
            tree.sessions.clear()
            done = RESTORING_HERE not in tree.nodes and bool(tree.nodes)
            if not done:
                with pytest.raises(StorageError):
                    await start_on(copy_of(tree))
                Crashing.left = 0
                await restore(session(tree), rebuilt)
            image = await start_on(tree)
            assert set(image.topics) == {"topic-0", "topic-1", "topic-2"}
            assert image.cluster_id == export.image.cluster_id
            assert_secured(image)
    assert steps >= 6
    Crashing.left = 0


@in_loop
async def test_a_store_that_holds_anything_is_refused(export: Export) -> None:
    rebuilt = with_copies(export, {}, {})
    used = await (await a_cluster()).connect()
    with pytest.raises(StorageError, match=r"holds cluster .* only an empty one"):
        await restore(used, rebuilt)
    foreign = await MemoryTree().connect()
    await foreign.multi([Create("/zookeeper", b"")])
    with pytest.raises(StorageError, match="holds other data"):
        await restore(foreign, rebuilt)
    claimed = await MemoryTree().connect()
    await claimed.multi([Create(RESTORING_HERE, layout.encode(cluster="another"))])
    with pytest.raises(StorageError, match="unfinished restore of cluster another"):
        await restore(claimed, rebuilt)


@in_loop
async def test_the_broker_with_the_newest_log_leads_when_it_comes_with_that_directory(
    export: Export,
) -> None:
    held = [{"topic-0-0": log_of(export, 5, 10)}, {"topic-0-0": log_of(export, 5, 20)}]
    directories = [directory(export, n, each, epoch=30 + n) for n, each in enumerate(held)]
    rebuilt = rebuild(export, directories, ())
    for broker in range(2):
        # The life that the directory is of, or the broker would count as one that lost records.
        known = layout.decode("", rebuilt.nodes[f"{layout.BROKERS_SEEN}/{broker}"])
        assert (known["epoch"], known["alive"]) == (30 + broker, False)
    for directory_id, leads in ((directories[1].directory_id, True), ("emptied since", False)):
        tree = MemoryTree()
        store, other = await tree.connect(), await tree.connect()
        await restore(store, rebuilt)
        controller = await start_controller(store)
        for session_, broker, name in (
            (store, 0, directories[0].directory_id),
            (other, 1, directory_id),
        ):
            entry = BrokerRegistration(
                broker, -1, None, ENDPOINTS, directory_id=name, clean_epoch=30 + broker
            )._replace(metadata_version=layout.VALUE_VERSION)
            registered = await register_broker(session_, entry)
            while (registration := controller.image.brokers.get(broker)) is None:
                image = controller.image
                await controller.changes_after(image.version, 10.0, image.controller_epoch)
            assert registration.epoch == registered.epoch
            state = controller.image.topics["topic-0"].partitions[0]
            # Never the older log, not even while it is alone.
            assert state.leader == (1 if leads and broker == 1 else NO_LEADER)
        await controller.close()


@in_loop
async def test_the_next_controller_begins_a_newer_epoch(export: Export) -> None:
    tree = MemoryTree()
    await restore(await tree.connect(), with_copies(export, {}, {}))
    term = await take_office(await tree.connect(), Place(0, may_found=False), make_rules().random)
    assert term.image.controller_epoch > export.image.controller_epoch + 100
