"""What a broker knows of its cluster: one immutable value, replaced as a whole.

Promises: an image never changes once it is made; `apply_all` gives a new one that shares everything
it does not touch. Handlers read an image and nothing else, so whatever they answer is of one
moment. `version` is the revision of the store at which the image holds; together with
`controller_epoch` it says how new the image is.

The parts are named tuples: there are tens of thousands of them on a large cluster, and a class of
this kind costs a tenth of a frozen dataclass to define at start and a third to make.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

from tidelog.model import NO_LEADER
from tidelog.security.acl import AclBinding
from tidelog.security.credentials import ScramCredential
from tidelog.security.quota_entities import QuotaEntity

if TYPE_CHECKING:
    from tidelog.cluster.changes import Change

K = TypeVar("K")
V = TypeVar("V")


class Endpoint(NamedTuple):
    """Where a broker is reached through one of its listeners."""

    listener: str
    host: str
    port: int


class BrokerRegistration(NamedTuple):
    """A broker in one of its lives; `epoch` differs for every life of the same broker id.

    What follows the endpoints tells the controller what the broker can have lost since its last
    life (`cluster/lives.py`); empty and -1 stand for unknown.
    """

    id: int
    epoch: int
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    # Made with the data directory: an emptied or another directory has another one.
    directory_id: str = ""
    # Both the same as before: the kernel and its page cache have outlived the broker.
    boot_id: str = ""
    mount_id: str = ""
    # The broker epoch that ended with all records on disk, or with the process still running.
    clean_epoch: int = -1
    # What the broker's own file says of `min.insync.replicas`; 0 where it says nothing.
    min_isr: int = 0
    # The highest version of the metadata in the store that it reads (`cluster/layout`).
    metadata_version: int = 2
    # Set by the controller, ends with this life: it neither leads nor joins an ISR any more.
    shutting_down: bool = False
    # Of the process: it is in the data directory before it is here.
    incarnation: str = ""

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address for this listener's clients, or None where the broker has none."""
        return next((each for each in self.endpoints if each.listener == listener), None)


class PartitionState(NamedTuple):
    """Who leads a partition and who is in sync; `partition_epoch` counts the changes of this.

    While replicas are moved, `replicas` has the old and the new ones, `adding` those that the
    partition did not have before and `removing` those that it will not have afterwards.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def replication_factor(self) -> int:
        """How many replicas count: those that are only on their way do not."""
        return len(self.replicas) - len(self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that the partition has when nothing is moved any more."""
        return tuple(each for each in self.replicas if each not in self.removing)


class TopicImage(NamedTuple):
    """A topic; `partitions[n]` is partition n. Ids are random and 128 bits wide: an id that was
    ever given to a topic will not come again, so nobody keeps those of deleted topics."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        return self.partitions[0].replication_factor

    @property
    def holders(self) -> tuple[int, ...]:
        """The brokers that have a replica of any partition, in their order."""
        return tuple(sorted({each for state in self.partitions for each in state.replicas}))


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The cluster at one version. Compare images with `same_content`: versions apart, they say the
    same."""

    version: int = 0
    cluster_id: str = ""
    controller_id: int = -1
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    # Brokers that are not there now, as they were last known.
    absent: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    # Names that hold "." or "_", under the name in which every "." is a "_".
    unified_names: Mapping[str, str] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Tombstones: topics that were deleted, and the brokers that may still have files of theirs.
    deleted: Mapping[UUID, tuple[int, ...]] = field(default_factory=dict)
    # By user and mechanism ("SCRAM-SHA-256"). Secrets: answers are not made of these.
    scram_credentials: Mapping[tuple[str, str], ScramCredential] = field(default_factory=dict)
    acls: frozenset[AclBinding] = frozenset()
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    partition_count: int = 0
    next_producer_id: int = 0

    def apply_all(self, changes: Iterable[Change], version: int) -> MetadataImage:
        """The image after several changes, which bring it to `version`."""
        draft = Draft(self)
        for change in changes:
            change.apply_to(draft)
        return draft.image(version)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def same_content(self, other: MetadataImage) -> bool:
        """True where the two differ at most in version and controller."""
        unversioned = (
            replace(each, version=0, controller_id=-1, controller_epoch=0) for each in (self, other)
        )
        return next(unversioned) == next(unversioned)


class Draft:
    """An image in the making: a dictionary is copied the first time that it is written to."""

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._own: set[str] = set()
        self.brokers = base.brokers
        self.absent = base.absent
        self.topics = base.topics
        self.topic_names = base.topic_names
        self.unified_names = base.unified_names
        self.broker_configs = base.broker_configs
        self.group_configs = base.group_configs
        self.deleted = base.deleted
        self.scram_credentials = base.scram_credentials
        self.acls: AbstractSet[AclBinding] = base.acls
        self.client_quotas = base.client_quotas
        self.partition_count = base.partition_count
        self.next_producer_id = base.next_producer_id

    @property
    def cluster_id(self) -> str:
        return self._base.cluster_id

    def put_broker(self, registration: BrokerRegistration) -> None:
        self.brokers = self._writable("brokers", self.brokers)
        self.brokers[registration.id] = registration
        if registration.id in self.absent:
            self.absent = self._writable("absent", self.absent)
            del self.absent[registration.id]

    def remove_broker(self, broker_id: int) -> None:
        self.brokers = self._writable("brokers", self.brokers)
        self.absent = self._writable("absent", self.absent)
        self.absent[broker_id] = self.brokers.pop(broker_id)

    def forget_broker(self, broker_id: int) -> None:
        """A broker that is gone is not known any more."""
        self.absent = self._writable("absent", self.absent)
        del self.absent[broker_id]

    def put_topic(self, topic: TopicImage) -> None:
        """Add the topic, or replace the one of that name and id."""
        old = self.topics.get(topic.name)
        self.topics = self._writable("topics", self.topics)
        self.topics[topic.name] = topic
        self.partition_count += len(topic.partitions)
        if old is not None:
            self.partition_count -= len(old.partitions)
            return
        self.topic_names = self._writable("topic_names", self.topic_names)
        self.topic_names[topic.topic_id] = topic.name
        unified = unify_name(topic.name)
        if unified is not None:
            self.unified_names = self._writable("unified_names", self.unified_names)
            self.unified_names[unified] = topic.name

    def remove_topic(self, name: str) -> None:
        self.topics = self._writable("topics", self.topics)
        topic = self.topics.pop(name)
        self.partition_count -= len(topic.partitions)
        self.topic_names = self._writable("topic_names", self.topic_names)
        del self.topic_names[topic.topic_id]
        unified = unify_name(name)
        if unified is not None:
            self.unified_names = self._writable("unified_names", self.unified_names)
            self.unified_names.pop(unified, None)

    def put_tombstone(self, topic_id: UUID, brokers: tuple[int, ...]) -> None:
        """Brokers that may have files of a deleted topic; where there is none left, forget it."""
        self.deleted = self._writable("deleted", self.deleted)
        _put(self.deleted, topic_id, brokers)

    def put_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        self.broker_configs = self._writable("broker_configs", self.broker_configs)
        _put(self.broker_configs, broker, configs)

    def put_group_configs(self, group: str, configs: Mapping[str, str]) -> None:
        self.group_configs = self._writable("group_configs", self.group_configs)
        _put(self.group_configs, group, configs)

    def put_scram_credential(
        self, user: str, mechanism: str, credential: ScramCredential | None
    ) -> None:
        self.scram_credentials = self._writable("scram_credentials", self.scram_credentials)
        _put(self.scram_credentials, (user, mechanism), credential)

    def change_acls(self, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> None:
        if "acls" not in self._own:
            self._own.add("acls")
            self.acls = set(self.acls)
        assert isinstance(self.acls, set)
        self.acls.difference_update(removed)
        self.acls.update(added)

    def put_client_quotas(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        self.client_quotas = self._writable("client_quotas", self.client_quotas)
        _put(self.client_quotas, entity, quotas)

    def image(self, version: int) -> MetadataImage:
        """The finished image. The draft must not be used afterwards."""
        # What is not private here is a field of the image.
        fields = {name: held for name, held in vars(self).items() if not name.startswith("_")}
        fields["acls"] = frozenset(self.acls)
        return replace(self._base, version=version, **fields)

    def _writable(self, name: str, mapping: Mapping[K, V]) -> dict[K, V]:
        if name in self._own:
            return mapping  # type: ignore[return-value]
        self._own.add(name)
        return dict(mapping)


# What can be read of an image, and of a draft of the next one.
ImageView = MetadataImage | Draft


def _put(mapping: dict[K, V], key: K, value: V | None) -> None:
    """Keep a value under its key; an empty one is not kept."""
    if value:
        mapping[key] = value
    else:
        mapping.pop(key, None)


def unify_name(name: str) -> str | None:
    """The name under which two topics collide in the names of metrics; None where none can."""
    if "." not in name and "_" not in name:
        return None
    return name.replace(".", "_")


def changed_topics(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    """Names of topics that differ; values are immutable, so identity tells."""
    for name, topic in new.topics.items():
        if old.topics.get(name) is not topic:
            yield name
    for name in sorted(old.topics.keys() - new.topics.keys()):
        yield name
