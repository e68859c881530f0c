"""How the metadata lies in the store: paths and values, and the way there and back.

    /cluster/id                        {"v":2,"id":"22 characters"}          written once
    /cluster/key                       {"v":2,"key":"64 hex digits"}         written once, secret
    /controller/owner                  {"v":2,"broker":0,"epoch":7,"endpoint":["INTERNAL","h",9093]}
                                       ephemeral; where brokers reach the controller
    /controller/epoch                  {"v":2,"epoch":7,"broker":0}          checked by every write
    /controller/sequence               {"v":2,"epoch":7,"number":42}         set by every write
    /brokers/ids/<id>                  {"v":2,"rack":null,"endpoints":[["PLAINTEXT","host",9092]],
                                       "directory_id":"","boot_id":"","mount_id":"",
                                       "clean_epoch":-1,"incarnation":"","min_isr":0,
                                       "shutting_down":false}
                                       ephemeral; the broker's own, the revision that made it is
                                       the broker epoch
    /brokers/seen/<id>                 {"v":2,"epoch":9,"alive":true, and all of the above}
                                       what the controller last knew of a broker; written after the
                                       partition states that follow from it
    /topics/<name>                     {"v":2,"id":"32 hex digits","configs":{},"partitions":1}
                                       the count says which partitions there are
    /topics/<name>/partitions/<n>      {"v":2,"leader":0,"leader_epoch":3,"replicas":[0],"isr":[0],
                                       "elr":[],"last_known_elr":[],"controller_epoch":7}
                                       and, while replicas are moved, "adding" and "removing";
                                       the node's version is the partition epoch
    /deleted/<topic id>                {"v":2,"brokers":[0]}
                                       a tombstone: the topic was deleted, these brokers may still
                                       have files of it
    /config/brokers/<id or default>    {"v":2,"configs":{}}
    /config/groups/<digest>            {"v":2,"group":"any text","configs":{}}
                                       a group's name may be no name of a node, or too long for one
    /producer_ids/next                 {"v":2,"next":5000,"broker":0}
    /security, /quotas                 see `security_nodes`; since version 3

Promises: applying a change to an image and writing its operations to the store come to the same:
reading the store back gives an equal image. A value with a higher "v" than is known here, or one
that cannot be understood, is refused with its path; nothing is guessed. While a cluster is upgraded
the values are written in the highest version that all its brokers read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import starmap
from typing import Any, Final
from uuid import UUID

from tidelog.cluster import security_nodes
from tidelog.cluster.changes import (
    AclsChanged,
    BrokerConfigsChanged,
    BrokerGone,
    BrokerRegistered,
    BrokerRemoved,
    Change,
    ClientQuotasChanged,
    DeletionConfirmed,
    GroupConfigsChanged,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    ScramCredentialChanged,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.cluster.image import (
    BrokerRegistration,
    Draft,
    Endpoint,
    ImageView,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from tidelog.errors import StorageError
from tidelog.store.port import Create, Delete, Operation, Set, Stored

logger = logging.getLogger(__name__)

VALUE_VERSION: Final = 3
# Values of older versions are read; the next write of a node makes it one of this version.
_READ_VERSIONS: Final = (1, 2, 3)
# In the place of a version: the metadata is elsewhere.
MOVING: Final = "moving"
MOVED: Final = "moved"
_WORDS: Final = {
    MOVING: "this metadata is being moved to {to}, and the move was interrupted; run the same"
    " tidelog cluster move again",
    MOVED: "this metadata was moved to {to}; start the broker with --store {to}",
}
# What a broker registers that the first version did not know.
_SINCE_VERSION_2: Final = (
    "directory_id",
    "boot_id",
    "mount_id",
    "clean_epoch",
    "incarnation",
    "min_isr",
    "metadata_version",
    "shutting_down",
)
# How brokers of different versions find each other. Fields may be added here, and nothing else: a
# broker of any version must know who the controller is, and which versions a broker reads.
_MEETING_VERSION: Final = 2

CLUSTER_ID: Final = "/cluster/id"
CLUSTER_KEY: Final = "/cluster/key"
CONTROLLER_OWNER: Final = "/controller/owner"
CONTROLLER_EPOCH: Final = "/controller/epoch"
CONTROLLER_SEQUENCE: Final = "/controller/sequence"
BROKER_IDS: Final = "/brokers/ids"
BROKERS_SEEN: Final = "/brokers/seen"
TOPICS: Final = "/topics"
DELETED: Final = "/deleted"
BROKER_CONFIGS: Final = "/config/brokers"
GROUP_CONFIGS: Final = "/config/groups"
PRODUCER_IDS: Final = "/producer_ids/next"
_FOLDERS: Final = (
    "/cluster",
    "/controller",
    "/brokers",
    BROKER_IDS,
    BROKERS_SEEN,
    TOPICS,
    DELETED,
    "/config",
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    "/producer_ids",
    *security_nodes.FOLDERS,
)
# A larger topic is not there before all of its partitions are.
PARTITIONS_AT_ONCE: Final = 200
# A node needs a name; no broker id is spelt like this.
_EVERY_BROKER: Final = "default"
# The partitions of a large cluster share a handful of values: each is decoded once.
_States = dict[bytes, PartitionState]


def encode(**fields: object) -> bytes:
    """A value of the store."""
    return json.dumps({"v": VALUE_VERSION, **fields}, separators=(",", ":")).encode()


def encode_meeting(**fields: object) -> bytes:
    """A value that brokers of every version read."""
    return encode(v=_MEETING_VERSION, **fields)


def decode(path: str, value: bytes) -> dict[str, Any]:
    """The fields of a value; StorageError names the path where it cannot be understood."""
    try:
        fields = json.loads(value.decode())
        version = fields["v"]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"the metadata at {path} is not readable: {error}") from error
    if version in (MOVING, MOVED):
        raise StorageError(_WORDS[version].format(to=fields.get("to")))
    if version not in _READ_VERSIONS:
        raise StorageError(
            f"the metadata at {path} has version {version}, this version of Tidelog reads"
            f" {' and '.join(map(str, _READ_VERSIONS))}; start the version that wrote it"
        )
    assert isinstance(fields, dict)
    return fields


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def encode_broker(registration: BrokerRegistration, **others: object) -> bytes:
    endpoints = [[each.listener, each.host, each.port] for each in registration.endpoints]
    fields = {name: getattr(registration, name) for name in _SINCE_VERSION_2}
    return encode_meeting(**others, rack=registration.rack, endpoints=endpoints, **fields)


def written_version(view: ImageView) -> int:
    """The highest version that all brokers of a cluster read, those included that are away."""
    known = (*view.brokers.values(), *view.absent.values())
    return min((each.metadata_version for each in known), default=VALUE_VERSION)


def check_version(view: ImageView) -> None:
    """StorageError where this version would not understand what the others write."""
    version = written_version(view)
    if version > VALUE_VERSION:
        raise StorageError(
            f"the metadata of the cluster is written in version {version}, this version of Tidelog"
            f" reads up to {VALUE_VERSION}; start a newer version"
        )


def in_version(operations: Sequence[Operation], version: int) -> Sequence[Operation]:
    """The same, written for brokers that read no newer version than this.

    There is none yet that is written differently: version 3 has further nodes, and nobody makes one
    before all brokers read it (`security_plans`). A next version says here what its values were in
    the one before.
    """
    if version >= VALUE_VERSION:
        return operations
    return [
        each._replace(value=_in_version(each.value, version))
        if isinstance(each, Create | Set)
        else each
        for each in operations
    ]


def _in_version(value: bytes, version: int) -> bytes:
    """A folder has no value, and what is written in a version for all stays so."""
    if not value:
        return value
    fields = json.loads(value)
    return encode(**{**fields, "v": min(fields["v"], version)})


def first_operations(cluster_id: str, controller_id: int, owner: bytes) -> list[Operation]:
    """What makes an empty store the store of a new cluster, in the epoch 1 of its controller."""
    operations: list[Operation] = [Create(path, b"") for path in _FOLDERS]
    operations += (
        Create(CLUSTER_ID, encode(id=cluster_id)),
        Create(CONTROLLER_OWNER, owner, ephemeral=True),
        Create(CONTROLLER_EPOCH, encode_meeting(epoch=1, broker=controller_id)),
        Create(CONTROLLER_SEQUENCE, encode_meeting(epoch=1, number=0)),
        Create(PRODUCER_IDS, encode(next=0, broker=controller_id)),
    )
    return operations


def operations_of(change: Change, before: ImageView, controller_epoch: int) -> Iterator[Operation]:
    """What writes a change to a store that holds the image before it.

    What is too much for one transaction may be cut anywhere but after its first operation: see
    `repairs`.
    """
    match change:
        case TopicCreated(topic):
            path = topic_path(topic.name)
            in_steps = len(topic.partitions) > PARTITIONS_AT_ONCE
            yield Create(path, _encode_topic(topic, partitions=0 if in_steps else None))
            yield Create(f"{path}/partitions", b"")
            yield from _create_partitions(topic.name, topic.partitions, controller_epoch)
            if in_steps:
                yield Set(path, _encode_topic(topic))
        case TopicDeleted(name, topic_id, partition_count):
            topic = before.topics[name]
            yield Set(topic_path(name), _encode_topic(topic, partitions=0))
            yield Create(_tombstone_path(topic_id), encode(brokers=topic.holders))
            for partition in range(partition_count):
                yield Delete(partition_path(name, partition))
            yield Delete(f"{topic_path(name)}/partitions")
            yield Delete(topic_path(name))
        case DeletionConfirmed(topic_id, holders):
            left = {"brokers": holders} if holders else None
            yield _write(_tombstone_path(topic_id), left, exists=True)
        case PartitionsAdded(name, partitions):
            topic = before.topics[name]
            count = len(topic.partitions) + len(partitions)
            yield from _create_partitions(name, partitions, controller_epoch)
            yield Set(topic_path(name), _encode_topic(topic, partitions=count))
        case PartitionsChanged(name, partitions):
            for state in partitions:
                value = _encode_partition(state, controller_epoch)
                path = partition_path(name, state.partition)
                yield Set(path, value, state.partition_epoch - 1)
        case TopicConfigsChanged(name, configs):
            yield Set(topic_path(name), _encode_topic(before.topics[name], configs=configs))
        case BrokerConfigsChanged(broker, configs):
            path = f"{BROKER_CONFIGS}/{broker or _EVERY_BROKER}"
            yield _write_configs(path, configs, broker in before.broker_configs)
        case GroupConfigsChanged(group, configs):
            path = f"{GROUP_CONFIGS}/{sha256(group.encode()).hexdigest()}"
            yield _write_configs(path, configs, group in before.group_configs, group=group)
        case ScramCredentialChanged() | AclsChanged() | ClientQuotasChanged():
            yield from starmap(_write, security_nodes.written(change, before))
        case ProducerIdsAllocated(broker_id, next_producer_id):
            yield Set(PRODUCER_IDS, encode(next=next_producer_id, broker=broker_id))
        case BrokerRegistered() | BrokerGone() | BrokerRemoved():
            yield _write_seen(change, before)


def _write_seen(
    change: BrokerRegistered | BrokerGone | BrokerRemoved, before: ImageView
) -> Operation:
    """What the controller last knew of a broker."""
    match change:
        case BrokerRegistered(registration):
            value = encode_broker(registration, epoch=registration.epoch, alive=True)
            path = f"{BROKERS_SEEN}/{registration.id}"
            known = registration.id in before.brokers or registration.id in before.absent
            return Set(path, value) if known else Create(path, value)
        case BrokerGone(broker_id):
            registration = before.brokers[broker_id]
            value = encode_broker(registration, epoch=registration.epoch, alive=False)
            return Set(f"{BROKERS_SEEN}/{broker_id}", value)
        case BrokerRemoved(broker_id):
            return Delete(f"{BROKERS_SEEN}/{broker_id}")


@dataclass(slots=True)
class Held:
    """What a store holds: the image, and what the next controller must compare its claim with."""

    image: MetadataImage
    epoch_version: int
    sequence_version: int


def load(tree: Mapping[str, Stored]) -> Held:
    """Everything that a whole store holds; the image's version is left for the caller to set."""
    for path in (CLUSTER_ID, CONTROLLER_EPOCH, CONTROLLER_SEQUENCE, PRODUCER_IDS):
        if path not in tree:
            raise StorageError(f"the metadata store has no {path}")
    draft = Draft(
        MetadataImage(
            cluster_id=_field(tree, CLUSTER_ID, "id"),
            controller_id=_field(tree, CONTROLLER_EPOCH, "broker"),
            controller_epoch=_field(tree, CONTROLLER_EPOCH, "epoch"),
        )
    )
    draft.next_producer_id = _field(tree, PRODUCER_IDS, "next")
    states: _States = {}
    for path in tree:
        try:
            _load_node(path, tree, draft, states)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _not_understood(path, error) from error
    image = draft.image(0)
    return Held(image, tree[CONTROLLER_EPOCH].version, tree[CONTROLLER_SEQUENCE].version)


def _field(tree: Mapping[str, Stored], path: str, name: str) -> Any:
    try:
        return decode(path, tree[path].value)[name]
    except KeyError as error:
        raise _not_understood(path, error) from error


def _not_understood(path: str, error: Exception) -> StorageError:
    return StorageError(f"the metadata at {path} is not understood: {error!r}")


def _load_node(path: str, tree: Mapping[str, Stored], draft: Draft, states: _States) -> None:
    """Add what a node says to the draft, if it is one that the image holds."""
    folder, _, name = path.rpartition("/")
    if folder == TOPICS:
        topic = _load_topic(name, tree, states)
        # Without any, it was not created yet or is not deleted yet: see `repairs`.
        if topic.partitions:
            draft.put_topic(topic)
    elif folder == BROKERS_SEEN:
        fields = decode(path, tree[path].value)
        registration = _registration(int(name), fields["epoch"], fields)
        draft.put_broker(registration)
        if not fields["alive"]:
            draft.remove_broker(registration.id)
    elif folder == DELETED:
        draft.put_tombstone(UUID(name), tuple(_field(tree, path, "brokers")))
    elif folder == BROKER_CONFIGS:
        broker = "" if name == _EVERY_BROKER else name
        draft.put_broker_configs(broker, _field(tree, path, "configs"))
    elif folder == GROUP_CONFIGS:
        fields = decode(path, tree[path].value)
        draft.put_group_configs(fields["group"], fields["configs"])
    elif folder in security_nodes.FOLDERS and path not in security_nodes.FOLDERS:
        security_nodes.load(path, decode(path, tree[path].value), draft)


def _load_topic(name: str, tree: Mapping[str, Stored], states: _States) -> TopicImage:
    path = topic_path(name)
    fields = decode(path, tree[path].value)
    # The first version kept the replicas here, and no count.
    replicas = fields.get("replicas")
    partitions = []
    for partition in range(fields["partitions"] if replicas is None else len(replicas)):
        state_path = partition_path(name, partition)
        node = tree[state_path]
        state = states.get(node.value)
        if state is None:
            state = states[node.value] = _decode_state(decode(state_path, node.value))
        state = state._replace(partition=partition, partition_epoch=node.version)
        if not state.replicas and replicas is not None:
            state = state._replace(replicas=tuple(replicas[partition]))
        partitions.append(state)
    return TopicImage(name, UUID(fields["id"]), tuple(partitions), fields["configs"])


def _decode_state(fields: dict[str, Any]) -> PartitionState:
    """What a partition's value says; partition and partition epoch are not in it."""
    return PartitionState(
        partition=-1,
        leader=fields["leader"],
        leader_epoch=fields["leader_epoch"],
        replicas=tuple(fields.get("replicas", ())),
        isr=tuple(fields["isr"]),
        elr=tuple(fields["elr"]),
        last_known_elr=tuple(fields["last_known_elr"]),
        adding=tuple(fields.get("adding", ())),
        removing=tuple(fields.get("removing", ())),
    )


def _registration(broker_id: int, epoch: int, fields: dict[str, Any]) -> BrokerRegistration:
    endpoints = tuple(Endpoint(*each) for each in fields["endpoints"])
    others = {name: fields[name] for name in _SINCE_VERSION_2 if name in fields}
    return BrokerRegistration(broker_id, epoch, fields["rack"], endpoints, **others)


def load_brokers(tree: Mapping[str, Stored]) -> dict[int, BrokerRegistration]:
    """The brokers that have a node, by id, from the part of the store that holds these nodes.

    A node that is no broker's is passed over: whoever put it there must not end every controller.
    """
    found = {}
    for path, node in tree.items():
        folder, _, name = path.rpartition("/")
        if folder != BROKER_IDS:
            continue
        try:
            found[int(name)] = _registration(int(name), node.created, decode(path, node.value))
        except (LookupError, TypeError, ValueError, StorageError) as error:
            logger.error("ignoring a node that is no broker's path=%s reason=%r", path, error)
    return found


def _tombstone_path(topic_id: UUID) -> str:
    return f"{DELETED}/{topic_id.hex}"


def missing_folders(tree: Mapping[str, object]) -> list[Create]:
    """What a store of an older version lacks."""
    return [Create(path, b"") for path in _FOLDERS if path not in tree]


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def _encode_topic(
    topic: TopicImage,
    *,
    configs: Mapping[str, str] | None = None,
    partitions: int | None = None,
) -> bytes:
    return encode(
        id=topic.topic_id.hex,
        configs=dict(topic.configs if configs is None else configs),
        partitions=len(topic.partitions) if partitions is None else partitions,
    )


def _encode_partition(state: PartitionState, controller_epoch: int) -> bytes:
    return _encode_state(state._replace(partition=-1, partition_epoch=-1), controller_epoch)


# The partitions of a topic are mostly in the same state; ten thousand encodings would be felt.
@lru_cache(maxsize=256)
def _encode_state(state: PartitionState, controller_epoch: int) -> bytes:
    moved = {"adding": state.adding, "removing": state.removing}
    return encode(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        isr=state.isr,
        elr=state.elr,
        last_known_elr=state.last_known_elr,
        **{name: replicas for name, replicas in moved.items() if replicas},
        controller_epoch=controller_epoch,
    )


def _create_partitions(
    topic: str, partitions: tuple[PartitionState, ...], controller_epoch: int
) -> Iterator[Operation]:
    for state in partitions:
        value = _encode_partition(state, controller_epoch)
        yield Create(partition_path(topic, state.partition), value)


def _write_configs(path: str, configs: Mapping[str, str], exists: bool, **owner: str) -> Operation:
    return _write(path, {**owner, "configs": dict(configs)} if configs else None, exists)


def _write(path: str, fields: Mapping[str, object] | None, exists: bool) -> Operation:
    """Make a node hold these fields, or take it away."""
    if fields is None:
        return Delete(path)
    return Set(path, encode(**fields)) if exists else Create(path, encode(**fields))
