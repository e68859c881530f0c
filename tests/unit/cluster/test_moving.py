"""The metadata of a stopped cluster goes to another store, and a crash leaves no two clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.unit.cluster.helpers import join, make_rules, start_controller
from tidelog.cluster.commands import (
    AllocateProducerIds,
    AlterClientQuotas,
    AlterScramCredentials,
    Command,
    CreateAcls,
    CreateTopic,
)
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.moving import move, read_users
from tidelog.cluster.office import Place, take_office
from tidelog.config.store_settings import check_keeps_secrets, parse_store
from tidelog.errors import ConfigError, StorageError
from tidelog.security.acl import AclBinding
from tidelog.security.credentials import ScramCredential
from tidelog.store.port import Create, Operation
from tidelog.testing.memory_store import MemoryStore, MemoryTree

ADDRESS = "zookeeper://there:2181/tidelog"

ALLOWED = AclBinding(2, 3, "orders", "User:alice", "*", 3, 3)
DENIED = ALLOWED._replace(host="10.0.0.1", permission=2)
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)
SECURITY: tuple[Command, ...] = (
    CreateAcls((ALLOWED, DENIED)),
    AlterScramCredentials("alice", {"SCRAM-SHA-256": CREDENTIAL}),
    AlterClientQuotas((("user", "alice"),), {"producer_byte_rate": 1024.0}),
)


def assert_secured(image: MetadataImage) -> None:
    """Nothing that protects the cluster was lost on the way (CVE-2024-27309)."""
    assert image.acls == {ALLOWED, DENIED}
    assert image.scram_credentials == {("alice", "SCRAM-SHA-256"): CREDENTIAL}
    assert image.client_quotas == {(("user", "alice"),): {"producer_byte_rate": 1024.0}}


class Crash(BaseException):
    """The program ends here."""


class Crashing(MemoryStore):
    """A session whose program ends before or after the n-th transaction of all such sessions."""

    left = 0
    after = False

    async def multi(self, operations: Sequence[Operation]) -> int:
        Crashing.left -= 1
        if Crashing.left == 0 and not Crashing.after:
            raise Crash
        revision = await super().multi(operations)
        if Crashing.left == 0:
            raise Crash
        return revision


def session(tree: MemoryTree) -> Crashing:
    tree.revision += 1
    store = Crashing(tree, tree.revision)
    tree.sessions[store.session] = store
    return store


async def a_cluster() -> MemoryTree:
    """Two brokers, topics, given producer ids; all of it stopped."""
    tree = MemoryTree()
    # Revisions of a store that has been used for long.
    tree.revision = 1000
    store = await tree.connect()
    controller = await start_controller(store)
    other = await tree.connect()
    first = await join(store, controller, 0)
    await join(other, controller, 1)
    for number in range(3):
        await controller.submit(CreateTopic(f"topic-{number}", partitions=40))
    await controller.submit(AllocateProducerIds(0, first.epoch))
    for command in SECURITY:
        await controller.submit(command)
    await controller.close()
    await store.close()
    await other.close()
    return tree


def copy_of(tree: MemoryTree) -> MemoryTree:
    copy = MemoryTree()
    copy.nodes, copy.revision = dict(tree.nodes), tree.revision
    return copy


async def start_on(tree: MemoryTree) -> MetadataImage:
    """What a broker that starts with a store finds; StorageError where it is refused."""
    store = await tree.connect()
    try:
        place = Place(0, may_found=False)
        term = await take_office(store, place, make_rules().random)
        return term.image
    finally:
        await store.close()


async def starts(tree: MemoryTree) -> bool:
    try:
        await start_on(copy_of(tree))
    except StorageError:
        return False
    return True


async def try_move(source: MemoryTree, target: MemoryTree) -> None:
    stores = [session(source), session(target)]
    try:
        await move(stores[0], stores[1], ADDRESS)
    finally:
        for store in stores:
            store.abandon()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_leaves_one_valid_side_and_the_move_can_be_run_again(
    after: bool,
) -> None:
    async def run() -> int:
        steps = 0
        while True:
            source, target = await a_cluster(), MemoryTree()
            before = (await start_on(copy_of(source))).topics
            Crashing.left, Crashing.after = steps + 1, after
            try:
                await try_move(source, target)
            except Crash:
                Crashing.left = -1
                valid = [await starts(source), await starts(target)]
                assert valid != [True, True], steps
                await try_move(source, target)
                assert [await starts(source), await starts(target)] == [False, True], steps
                there = await start_on(copy_of(target))
                assert there.topics.keys() == before.keys()
                assert_secured(there)
                steps += 1
                continue
            return steps

    # The claim, the copy, two marks and the last step.
    assert asyncio.run(run()) >= 5


def test_everything_is_moved_and_the_old_store_says_where_to() -> None:
    async def run() -> None:
        source, target = await a_cluster(), MemoryTree()
        before = await start_on(copy_of(source))
        Crashing.left = -1
        await try_move(source, target)
        image = await start_on(target)
        assert image.cluster_id == before.cluster_id
        assert_secured(image)
        assert image.next_producer_id == before.next_producer_id > 0
        assert image.controller_epoch == before.controller_epoch
        assert image.brokers == {} and image.absent.keys() == {0, 1}
        states = {name: topic.partitions for name, topic in before.topics.items()}
        for name, topic in image.topics.items():
            # A partition's epoch is the version of a node, which is new.
            assert [each._replace(partition_epoch=0) for each in topic.partitions] == [
                each._replace(partition_epoch=0) for each in states[name]
            ]
        with pytest.raises(StorageError, match=f"was moved to {ADDRESS}; start .* --store"):
            await start_on(source)
        # Run again, it finds its work done.
        await try_move(source, target)

    asyncio.run(run())


def test_brokers_come_back_although_the_new_stores_revisions_are_lower() -> None:
    async def run() -> None:
        source, target = await a_cluster(), MemoryTree()
        Crashing.left = -1
        await try_move(source, target)
        store, other = await target.connect(), await target.connect()
        controller = await start_controller(store)
        for each, broker_id in ((store, 0), (other, 1)):
            registration = await join(each, controller, broker_id)
            assert registration.epoch < 1000
        leaders = {
            state.leader for topic in controller.image.topics.values() for state in topic.partitions
        }
        assert leaders == {0, 1}
        await controller.close()

    asyncio.run(run())


def test_a_store_that_is_in_use_is_refused_by_name() -> None:
    async def run() -> None:
        Crashing.left = -1
        source, target = await a_cluster(), await a_cluster()
        with pytest.raises(StorageError, match=r"the cluster .*; name a chroot that is"):
            await try_move(source, target)
        assert await starts(source)
        target = MemoryTree()
        await (await target.connect()).multi([Create("/anything", b"")])
        with pytest.raises(StorageError, match="holds other data"):
            await try_move(source, target)
        assert await starts(source)
        with pytest.raises(StorageError, match="there is no cluster"):
            await try_move(MemoryTree(), MemoryTree())

    asyncio.run(run())


def test_metadata_on_its_way_goes_nowhere_else() -> None:
    async def run() -> None:
        Crashing.left = -1
        source, target = await a_cluster(), MemoryTree()
        await try_move(source, target)
        with pytest.raises(StorageError, match=f"was to go to {ADDRESS} before, not to other"):
            await move(session(source), session(MemoryTree()), "other")

    asyncio.run(run())


def test_credentials_are_not_moved_to_where_anybody_can_read_them() -> None:
    async def run() -> None:
        tree = await a_cluster()
        users = await read_users(await tree.connect())
        assert users == {"alice"}
        open_place = parse_store(ADDRESS)
        with pytest.raises(ConfigError, match=r"1 user\(s\).*set zookeeper\.digest"):
            check_keeps_secrets(open_place, "", len(users))
        check_keeps_secrets(open_place, "user:password", len(users))
        check_keeps_secrets(open_place, "", 0)
        check_keeps_secrets(None, "", len(users))

    asyncio.run(run())
