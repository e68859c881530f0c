"""What a lost store must hold again, from an export, which is old, and the data directories: pure.

The rules, by which nothing committed is lost where every broker's directory is there:

- Of all copies of a partition, those with the newest end (epoch of the last record, then offset)
  have all that was committed; a log that ends below a known watermark does not count, for retention
  may have emptied the others. These replicas are eligible (ELR), and none is in sync: the first one
  that registers leads, the others follow it.
- Leader epochs, controller epochs and producer ids skip well beyond all that is known: an export
  does not know what came after it.
- What a directory holds belongs to the cluster, exported or not. A topic that is not in the export
  keeps its id and gets default settings.
- A topic that no directory holds was deleted, where all directories are there; else it is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidelog.cluster import layout
from tidelog.cluster.changes import TopicCreated
from tidelog.cluster.exports import Export
from tidelog.cluster.image import BrokerRegistration, PartitionState, TopicImage
from tidelog.cluster.planner import PRODUCER_IDS_PER_BLOCK
from tidelog.errors import StorageError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.storage.survey import Copy, Surveyed
from tidelog.store.port import Create, Set
from tidelog.topic_names import topic_name_fault

# More elections than there can have been since the export, and more producers.
_EPOCHS_SKIPPED: Final = 1000
_PRODUCER_IDS_SKIPPED: Final = 10**9
# Written from what the directories say.
_REBUILT: Final = (
    layout.CLUSTER_KEY,
    layout.CONTROLLER_EPOCH,
    layout.CONTROLLER_SEQUENCE,
    layout.PRODUCER_IDS,
)
_REBUILT_FOLDERS: Final = (f"{layout.TOPICS}/", f"{layout.BROKERS_SEEN}/")


@dataclass(slots=True)
class Report:
    """What somebody who restores a cluster has to know."""

    cluster_id: str
    topics: int = 0
    partitions: int = 0
    # Created after the export: their settings are those that topics have by default.
    found: list[str] = field(default_factory=list)
    # In the export, and in no directory: deleted since.
    gone: list[str] = field(default_factory=list)
    # Partitions without a copy that can be served, and why.
    offline: dict[str, str] = field(default_factory=dict)
    # Directories that are of no topic of the cluster, and why.
    left_alone: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Rebuilt:
    """The nodes of the store by path, in their order; the controller's epoch is written last."""

    nodes: dict[str, bytes]
    controller_epoch: bytes
    report: Report


def check_brokers(
    export: Export, clusters: Mapping[str, tuple[str, int]], without: Collection[int]
) -> None:
    """StorageError where directories are of another cluster, twice there, or not there.

    `clusters` has the cluster and the broker that each directory belongs to.
    """
    by_broker: dict[int, str] = {}
    for path, (cluster_id, broker_id) in clusters.items():
        if cluster_id != export.image.cluster_id:
            raise StorageError(
                f"{path} belongs to cluster {cluster_id}, and the export is of cluster"
                f" {export.image.cluster_id}; name the directories of that cluster"
            )
        if broker_id in by_broker:
            raise StorageError(
                f"{by_broker[broker_id]} and {path} are both of broker {broker_id}; name the one"
                " that the broker used last"
            )
        by_broker[broker_id] = path
    missing = sorted(_known_brokers(export) - by_broker.keys() - set(without))
    if missing:
        options = " ".join(f"--without {each}" for each in missing)
        raise StorageError(
            "the directories of these brokers were not named:"
            f" {', '.join(map(str, missing))}. Name them too: they may hold records that the"
            f" others lack. If they are lost or were taken out of the cluster, add {options}"
        )


def _known_brokers(export: Export) -> set[int]:
    image = export.image
    held = {each for topic in image.topics.values() for each in topic.holders}
    return {*image.brokers, *image.absent, *held}


def rebuild(export: Export, directories: Sequence[Surveyed], without: Collection[int]) -> Rebuilt:
    """What the store must hold; StorageError where topic ids contradict each other."""
    image = export.image
    report = Report(image.cluster_id)
    copies = _Copies(export, directories, report)
    nodes = {
        path: value
        for path, value in export.nodes.items()
        if path not in _REBUILT and not path.startswith(_REBUILT_FOLDERS)
    }
    nodes |= {each.path: b"" for each in layout.missing_folders(nodes)}
    epoch = image.controller_epoch + _EPOCHS_SKIPPED
    for topic in _topics(export, copies, without, report):
        for each in layout.operations_of(TopicCreated(topic), image, epoch):
            assert isinstance(each, Create | Set)
            nodes[each.path] = each.value
        report.topics += 1
        report.partitions += len(topic.partitions)
    for registration in _registrations(export, directories):
        path = f"{layout.BROKERS_SEEN}/{registration.id}"
        nodes[path] = layout.encode_broker(registration, epoch=registration.epoch, alive=False)
    nodes[layout.CONTROLLER_SEQUENCE] = layout.encode_meeting(epoch=epoch, number=0)
    next_id = _next_producer_id(export, directories)
    nodes[layout.PRODUCER_IDS] = layout.encode(next=next_id, broker=image.controller_id)
    controller_epoch = layout.encode_meeting(epoch=epoch, broker=image.controller_id)
    return Rebuilt(dict(sorted(nodes.items())), controller_epoch, report)


def _next_producer_id(export: Export, directories: Sequence[Surveyed]) -> int:
    used = max((each.last_producer_id + 1 for each in directories), default=0)
    first = max(export.image.next_producer_id, used) + _PRODUCER_IDS_SKIPPED
    return -(-first // PRODUCER_IDS_PER_BLOCK) * PRODUCER_IDS_PER_BLOCK


def _registrations(export: Export, directories: Sequence[Surveyed]) -> Iterator[BrokerRegistration]:
    """What is known of each broker; one that comes with the directory seen here lost nothing."""
    known = {**export.image.absent, **export.image.brokers}
    for each in directories:
        broker_id = each.identity.node_id
        before = known.pop(broker_id, None) or BrokerRegistration(broker_id, -1, None, ())
        yield before._replace(
            epoch=each.intact_epoch,
            directory_id=each.directory_id,
            boot_id="",
            mount_id="",
            clean_epoch=-1,
            shutting_down=False,
        )
    yield from known.values()


class _Copies:
    """The copies of every partition, by broker, once it is clear which topic each is of."""

    def __init__(self, export: Export, directories: Sequence[Surveyed], report: Report) -> None:
        self.of: dict[str, dict[int, dict[int, Copy]]] = {}
        # The ids of topics that the export does not know.
        self.found: dict[str, UUID] = {}
        self.brokers = [each.identity.node_id for each in directories]
        image = export.image
        ids = _ids_by_topic(directories)
        for directory in directories:
            for path in directory.nameless:
                report.left_alone[path] = "it does not say which topic it belongs to"
            for partition, copy in directory.copies.items():
                path = f"{directory.path}/{partition}"
                topic = image.topics.get(partition.topic)
                if copy.topic_id in image.deleted:
                    continue
                if topic is not None and copy.topic_id != topic.topic_id:
                    raise _another_topic(path, copy.topic_id, topic)
                if topic is None:
                    fault = _found_fault(partition, ids)
                    if fault is not None:
                        report.left_alone[path] = fault
                        continue
                    self.found[partition.topic] = copy.topic_id
                of_topic = self.of.setdefault(partition.topic, {})
                of_topic.setdefault(partition.partition, {})[directory.identity.node_id] = copy


def _ids_by_topic(directories: Sequence[Surveyed]) -> dict[str, set[UUID]]:
    """The ids that sound copies give for each name."""
    ids: dict[str, set[UUID]] = {}
    for directory in directories:
        for partition, copy in directory.copies.items():
            if not copy.damage:
                ids.setdefault(partition.topic, set()).add(copy.topic_id)
    return ids


def _found_fault(partition: TopicPartition, ids: Mapping[str, set[UUID]]) -> str | None:
    """Why a directory does not make a topic that the export lacks."""
    fault = topic_name_fault(partition.topic)
    if fault is not None:
        return fault
    known = ids.get(partition.topic, ())
    if len(known) == 1:
        return None
    if not known:
        return "its topic is not in the export, and no copy of it can be opened"
    return f"directories give the topic {partition.topic} {len(known)} different ids"


def _another_topic(path: str, topic_id: UUID, topic: TopicImage) -> StorageError:
    return StorageError(
        f"{path} holds a topic {topic.name} with the id {topic_id}, and in the export the id is"
        f" {topic.topic_id}: the topic was created again after the export. Use a newer export, or"
        f" move the directories of {topic.name} out of the data directories"
    )


def _topics(
    export: Export, copies: _Copies, without: Collection[int], report: Report
) -> Iterator[TopicImage]:
    for topic in export.image.topics.values():
        held = copies.of.get(topic.name, {})
        if not held and not without:
            report.gone.append(topic.name)
            continue
        yield _topic(topic, held, copies.brokers, report)
    for name, topic_id in sorted(copies.found.items()):
        report.found.append(name)
        yield _topic(TopicImage(name, topic_id, (), {}), copies.of[name], copies.brokers, report)


def _topic(
    topic: TopicImage,
    held: Mapping[int, Mapping[int, Copy]],
    brokers: Collection[int],
    report: Report,
) -> TopicImage:
    count = max((*(each + 1 for each in held), len(topic.partitions)))
    states = []
    for number in range(count):
        before = (
            topic.partitions[number]
            if number < len(topic.partitions)
            else PartitionState(number, NO_LEADER, 0, _usual_replicas(topic, held), ())
        )
        state, fault = _partition(before, held.get(number, {}), brokers)
        if fault:
            report.offline[f"{topic.name}-{number}"] = fault
        states.append(state)
    return topic._replace(partitions=tuple(states))


def _usual_replicas(topic: TopicImage, held: Mapping[int, Mapping[int, Copy]]) -> tuple[int, ...]:
    """As many as the topic has elsewhere, for a partition that nobody exported."""
    if topic.partitions:
        return topic.partitions[0].target
    return max((tuple(sorted(each)) for each in held.values()), key=len)


def _partition(
    before: PartitionState, copies: Mapping[int, Copy], brokers: Collection[int]
) -> tuple[PartitionState, str]:
    """The state of a partition that nobody leads, and why nobody can, where that is so."""
    replicas = _replicas(before, copies, brokers)
    sound = {broker: copy for broker, copy in copies.items() if not copy.damage}
    eligible = tuple(each for each in replicas if each in _newest(sound))
    last_known: tuple[int, ...] = ()
    fault = ""
    if not copies:
        # It was never begun anywhere, unless one of those has it who are not here.
        if set(before.replicas) <= set(brokers):
            eligible = replicas
        else:
            fault = "no directory has it"
    elif not eligible:
        last_known = tuple(each for each in replicas if each in copies)
        fault = next(copy.damage for copy in copies.values())
    epoch = max(before.leader_epoch, *(each.last_epoch for each in copies.values()), 0)
    return (
        PartitionState(
            before.partition,
            NO_LEADER,
            epoch + _EPOCHS_SKIPPED,
            replicas,
            (),
            elr=eligible,
            last_known_elr=last_known,
        ),
        fault,
    )


def _newest(copies: Mapping[int, Copy]) -> set[int]:
    """The brokers whose logs have all that was committed, and the newest end."""
    committed = max((each.high_watermark for each in copies.values()), default=0)
    ends = {
        broker: (each.last_epoch, each.end_offset)
        for broker, each in copies.items()
        if each.end_offset >= committed
    }
    best = max(ends.values(), default=None)
    return {broker for broker, end in ends.items() if end == best}


def _replicas(
    before: PartitionState, copies: Mapping[int, Copy], brokers: Collection[int]
) -> tuple[int, ...]:
    """Whoever has a copy or may have one; as many as before, where fewer have."""
    if not copies:
        return before.target
    kept = [each for each in before.replicas if each in copies or each not in brokers]
    replicas = [*kept, *sorted(copies.keys() - set(kept))]
    for each in before.target:
        if len(replicas) < len(before.target) and each not in replicas:
            replicas.append(each)
    return tuple(replicas)
