"""The controller's office: one broker at a time has it, and it is taken before anything is read.

One transaction creates the owner's node, which goes with its session, and raises the epoch that
every later write checks. Whoever wrote before cannot write any more when it is done, so what is
read next stays as it was read.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from tidelog.cluster import layout
from tidelog.cluster.image import Endpoint, MetadataImage
from tidelog.cluster.key import missing_key, new_key
from tidelog.cluster.repairs import repairs
from tidelog.cluster.steps import Steps
from tidelog.errors import StorageError
from tidelog.host.offload import Offload
from tidelog.host.random import Random
from tidelog.store.port import (
    Check,
    Conflict,
    ConnectionLoss,
    Create,
    Delete,
    Operation,
    Set,
    Store,
    Stored,
    StoreError,
)


class OfficeTaken(StoreError):
    """Another broker is the controller."""


class Place(NamedTuple):
    """The broker that stands for the office, and where the others reach it."""

    broker_id: int
    endpoint: Endpoint | None = None
    # A broker whose directory names a cluster never founds another one.
    may_found: bool = True

    def as_owner(self, epoch: int) -> bytes:
        """The value of the owner's node."""
        return layout.encode_meeting(broker=self.broker_id, epoch=epoch, endpoint=self.endpoint)


class Owner(NamedTuple):
    """Who is the controller, and where it is reached."""

    broker_id: int
    epoch: int
    endpoint: Endpoint | None

    @classmethod
    def decode(cls, value: bytes) -> Owner:
        """From the value of the owner's node; one of an older version has no endpoint."""
        fields = layout.decode(layout.CONTROLLER_OWNER, value)
        endpoint = fields.get("endpoint")
        return cls(
            fields["broker"], fields["epoch"], None if endpoint is None else Endpoint(*endpoint)
        )


class Term(NamedTuple):
    """What a controller begins with: the metadata, and the versions that its writes check."""

    image: MetadataImage
    epoch_version: int
    sequence_version: int


async def take_office(
    store: Store, place: Place, random: Random, offload: Offload | None = None
) -> Term:
    """Become the controller; found the cluster where the store is empty.

    `OfficeTaken` where another broker has the office; StorageError where what the store holds
    cannot be understood.
    """
    epoch_version = await _claim(store, place)
    if epoch_version is None:
        return await _found_cluster(store, place, random)
    try:
        return await _take_over(store, epoch_version, random, offload)
    except BaseException:
        await resign(store, epoch_version)
        raise


async def resign(store: Store, epoch_version: int) -> None:
    """Free the office for the next one at once; where this fails it goes with the session."""
    with suppress(StoreError):
        await store.multi(
            (Check(layout.CONTROLLER_EPOCH, epoch_version), Delete(layout.CONTROLLER_OWNER))
        )


async def _claim(store: Store, place: Place) -> int | None:
    """The version of the node that every write checks; None where the store is empty."""
    await store.sync()
    node = await store.read(layout.CONTROLLER_EPOCH)
    if node is None:
        return None
    epoch = layout.decode(layout.CONTROLLER_EPOCH, node.value)["epoch"] + 1
    office = place.as_owner(epoch)
    operations: list[Operation] = [
        Create(layout.CONTROLLER_OWNER, office, ephemeral=True),
        Set(
            layout.CONTROLLER_EPOCH,
            layout.encode_meeting(broker=place.broker_id, epoch=epoch),
            node.version,
        ),
    ]
    owner = await store.read(layout.CONTROLLER_OWNER)
    if owner is not None:
        if owner.session != store.session:
            raise OfficeTaken("another broker is the controller")
        # From an earlier try in this session.
        operations.insert(0, Delete(layout.CONTROLLER_OWNER, owner.version))
    try:
        await store.multi(operations)
    except Conflict as conflict:
        raise OfficeTaken("another broker was faster") from conflict
    except ConnectionLoss:
        # Done or not: the node tells, and belongs to this session alone.
        owner = await store.read(layout.CONTROLLER_OWNER)
        if owner is None or owner.value != office or owner.session != store.session:
            raise
    return node.version + 1


async def _take_over(
    store: Store, epoch_version: int, random: Random, offload: Offload | None
) -> Term:
    """Read all of it and mark it as read: from here on it changes by this hand only."""
    await store.sync()
    tree = await store.tree("/")
    held = await _loaded(tree, offload)
    if held.epoch_version != epoch_version:
        raise OfficeTaken("another broker took the office meanwhile")
    steps = Steps()
    steps.add(repairs(tree))
    if steps.count:
        for step in steps:
            await store.multi((Check(layout.CONTROLLER_EPOCH, epoch_version), *step.operations))
        tree = await store.tree("/")
        held = await _loaded(tree, offload)
    epoch = held.image.controller_epoch
    revision = await store.multi(
        (
            Check(layout.CONTROLLER_EPOCH, epoch_version),
            Set(
                layout.CONTROLLER_SEQUENCE,
                layout.encode_meeting(epoch=epoch, number=0),
                held.sequence_version,
            ),
            *layout.missing_folders(tree),
            *missing_key(tree, random),
        )
    )
    return Term(replace(held.image, version=revision), epoch_version, held.sequence_version + 1)


async def _loaded(tree: Mapping[str, Stored], offload: Offload | None) -> layout.Held:
    """What the store holds; on a thread, where there is one: it takes its time."""
    return layout.load(tree) if offload is None else await offload.run(layout.load, tree)


async def _found_cluster(store: Store, place: Place, random: Random) -> Term:
    """Write what a new cluster begins with, in one transaction."""
    names = await store.children("/")
    if names:
        if await store.read(layout.CONTROLLER_EPOCH) is not None:
            raise OfficeTaken("another broker has just founded the cluster")
        raise StorageError(
            f"the metadata store holds /{names[0]} and has no {layout.CONTROLLER_EPOCH}; choose a"
            " chroot of its own for the cluster; if tidelog cluster move or restore was"
            " interrupted while it wrote to the store, run the same command again"
        )
    if not place.may_found:
        raise StorageError(
            "the metadata store is empty, but the data directory belongs to a cluster;"
            " start the broker with the store of that cluster, or with an empty directory; if that"
            " store is lost, tidelog cluster restore makes it again"
        )
    identifier = base64.urlsafe_b64encode(random.uuid().bytes)
    cluster_id = identifier.rstrip(b"=").decode()
    broker_id = place.broker_id
    first = layout.first_operations(cluster_id, broker_id, place.as_owner(1))
    operations = [*first, new_key(random)]
    try:
        revision = await store.multi(operations)
    except Conflict as conflict:
        raise OfficeTaken("another broker founded the cluster") from conflict
    return Term(MetadataImage(revision, cluster_id, broker_id, controller_epoch=1), 0, 0)
