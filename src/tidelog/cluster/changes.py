"""Everything that can happen to a MetadataImage, one class each.

A change says what is so afterwards, not what was asked: applying it needs no decision, so every
broker that applies the same changes in the same order holds the same image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import NamedTuple
from uuid import UUID

from tidelog.cluster.image import (
    BrokerRegistration,
    Draft,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from tidelog.security.acl import AclBinding
from tidelog.security.credentials import ScramCredential
from tidelog.security.quota_entities import QuotaEntity

_Configs = Mapping[str, Mapping[str, str]]


class BrokerRegistered(NamedTuple):
    """A broker is alive, in a new life."""

    registration: BrokerRegistration

    def apply_to(self, draft: Draft) -> None:
        draft.put_broker(self.registration)


class BrokerGone(NamedTuple):
    """A broker's life has ended."""

    broker_id: int

    def apply_to(self, draft: Draft) -> None:
        draft.remove_broker(self.broker_id)


class BrokerRemoved(NamedTuple):
    """A broker that was gone is not known any more."""

    broker_id: int

    def apply_to(self, draft: Draft) -> None:
        draft.forget_broker(self.broker_id)


class TopicCreated(NamedTuple):
    """A topic exists, with all of its partitions."""

    topic: TopicImage

    def apply_to(self, draft: Draft) -> None:
        draft.put_topic(self.topic)


class TopicDeleted(NamedTuple):
    """A topic is gone; one of the same name that comes later has another id.

    A tombstone stays until every broker that had a replica has removed its files.
    """

    topic: str
    topic_id: UUID
    partition_count: int

    def apply_to(self, draft: Draft) -> None:
        draft.put_tombstone(self.topic_id, draft.topics[self.topic].holders)
        draft.remove_topic(self.topic)


class DeletionConfirmed(NamedTuple):
    """A broker has no file of a deleted topic any more; `holders` are those that may have."""

    topic_id: UUID
    holders: tuple[int, ...]

    def apply_to(self, draft: Draft) -> None:
        draft.put_tombstone(self.topic_id, self.holders)


class PartitionsAdded(NamedTuple):
    """A topic has further partitions, numbered on from those it had."""

    topic: str
    partitions: tuple[PartitionState, ...]

    def apply_to(self, draft: Draft) -> None:
        topic = draft.topics[self.topic]
        draft.put_topic(topic._replace(partitions=topic.partitions + self.partitions))


class PartitionsChanged(NamedTuple):
    """Some partitions of a topic have another leader, epoch or in-sync set."""

    topic: str
    partitions: tuple[PartitionState, ...]

    def apply_to(self, draft: Draft) -> None:
        topic = draft.topics[self.topic]
        partitions = list(topic.partitions)
        for state in self.partitions:
            partitions[state.partition] = state
        draft.put_topic(topic._replace(partitions=tuple(partitions)))


class TopicConfigsChanged(NamedTuple):
    """A topic has these overrides and no others."""

    topic: str
    configs: Mapping[str, str]

    def apply_to(self, draft: Draft) -> None:
        draft.put_topic(draft.topics[self.topic]._replace(configs=self.configs))


class BrokerConfigsChanged(NamedTuple):
    """A broker, or with "" every broker, has these dynamic settings and no others."""

    broker: str
    configs: Mapping[str, str]

    def apply_to(self, draft: Draft) -> None:
        draft.put_broker_configs(self.broker, self.configs)


class GroupConfigsChanged(NamedTuple):
    """A group has these settings of its own and no others."""

    group: str
    configs: Mapping[str, str]

    def apply_to(self, draft: Draft) -> None:
        draft.put_group_configs(self.group, self.configs)


class ProducerIdsAllocated(NamedTuple):
    """The producer ids below `next_producer_id` are given out."""

    broker_id: int
    next_producer_id: int

    def apply_to(self, draft: Draft) -> None:
        draft.next_producer_id = self.next_producer_id


class ScramCredentialChanged(NamedTuple):
    """A user has this credential for a mechanism, or none any more."""

    user: str
    mechanism: str
    credential: ScramCredential | None

    def apply_to(self, draft: Draft) -> None:
        draft.put_scram_credential(self.user, self.mechanism, self.credential)


class AclsChanged(NamedTuple):
    """These rules hold from here on, and those do not any more: all at the same moment."""

    added: tuple[AclBinding, ...]
    removed: tuple[AclBinding, ...]

    def apply_to(self, draft: Draft) -> None:
        draft.change_acls(self.added, self.removed)


class ClientQuotasChanged(NamedTuple):
    """An entity has these quotas and no others."""

    entity: QuotaEntity
    quotas: Mapping[str, float]

    def apply_to(self, draft: Draft) -> None:
        draft.put_client_quotas(self.entity, self.quotas)


Change = (
    BrokerRegistered
    | BrokerGone
    | BrokerRemoved
    | TopicCreated
    | TopicDeleted
    | DeletionConfirmed
    | PartitionsAdded
    | PartitionsChanged
    | TopicConfigsChanged
    | BrokerConfigsChanged
    | GroupConfigsChanged
    | ProducerIdsAllocated
    | ScramCredentialChanged
    | AclsChanged
    | ClientQuotasChanged
)


class ChangeBatch(NamedTuple):
    """The changes of one transaction, which bring an image to `version`."""

    version: int
    changes: tuple[Change, ...]

    @property
    def size(self) -> int:
        """How much it changes: partitions and rules count one by one, all else as a whole."""
        return sum(map(_size, self.changes))


def _size(change: Change) -> int:
    match change:
        case TopicCreated(topic):
            return max(1, len(topic.partitions))
        case PartitionsAdded(_, partitions) | PartitionsChanged(_, partitions):
            return max(1, len(partitions))
        case AclsChanged(added, removed):
            return max(1, len(added) + len(removed))
        case _:
            return 1


class Update(NamedTuple):
    """What a feed lacks: the whole image, or the batches after the version that it has."""

    image: MetadataImage | None = None
    batches: tuple[ChangeBatch, ...] = ()


def changes_between(old: MetadataImage, new: MetadataImage) -> tuple[Change, ...]:
    """What leads from one image to another, for a feed that was given a whole image."""
    changes: list[Change] = [
        BrokerGone(broker.id) for broker in old.brokers.values() if broker.id not in new.brokers
    ]
    changes += (
        BrokerRegistered(broker)
        for broker in new.brokers.values()
        if old.brokers.get(broker.id) != broker
    )
    known = {*new.brokers, *new.absent}
    changes += map(BrokerRemoved, sorted({*old.brokers, *old.absent} - known))
    changes += (
        TopicDeleted(topic.name, topic.topic_id, len(topic.partitions))
        for topic in old.topics.values()
        if topic.topic_id not in new.topic_names
    )
    for topic in new.topics.values():
        before = old.topics.get(topic.name)
        if before is not topic:
            changes.extend(_changes_of_topic(before, topic))
    changes += starmap(BrokerConfigsChanged, _changed(old.broker_configs, new.broker_configs))
    changes += starmap(GroupConfigsChanged, _changed(old.group_configs, new.group_configs))
    if old.next_producer_id != new.next_producer_id:
        changes.append(ProducerIdsAllocated(new.controller_id, new.next_producer_id))
    changes += _security_changes(old, new)
    return tuple(changes)


def _security_changes(old: MetadataImage, new: MetadataImage) -> Iterator[Change]:
    for user, mechanism in sorted(old.scram_credentials.keys() | new.scram_credentials.keys()):
        credential = new.scram_credentials.get((user, mechanism))
        if old.scram_credentials.get((user, mechanism)) != credential:
            yield ScramCredentialChanged(user, mechanism, credential)
    if old.acls != new.acls:
        yield AclsChanged(tuple(sorted(new.acls - old.acls)), tuple(sorted(old.acls - new.acls)))
    for entity in old.client_quotas.keys() | new.client_quotas.keys():
        quotas = new.client_quotas.get(entity, {})
        if old.client_quotas.get(entity, {}) != quotas:
            yield ClientQuotasChanged(entity, quotas)


def _changed(old: _Configs, new: _Configs) -> Iterator[tuple[str, Mapping[str, str]]]:
    for name in sorted(old.keys() | new.keys()):
        configs = new.get(name, {})
        if old.get(name, {}) != configs:
            yield name, configs


def _changes_of_topic(before: TopicImage | None, topic: TopicImage) -> list[Change]:
    if before is None or before.topic_id != topic.topic_id:
        return [TopicCreated(topic)]
    changes: list[Change] = []
    count = len(before.partitions)
    changed = tuple(
        state for state in topic.partitions[:count] if state != before.partitions[state.partition]
    )
    if changed:
        changes.append(PartitionsChanged(topic.name, changed))
    if len(topic.partitions) > count:
        changes.append(PartitionsAdded(topic.name, topic.partitions[count:]))
    if before.configs != topic.configs:
        changes.append(TopicConfigsChanged(topic.name, topic.configs))
    return changes
