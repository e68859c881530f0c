"""Transactions as operations: what a producer, or somebody in its place, asks of coordinators.

Nothing here remembers a transaction; `transactional` does. A request goes to the coordinator that
is known, which is looked up anew after any error that may mean that it has moved.

Version 2 of the protocol (KIP-890) is spoken where the cluster has finalized `transaction.version`
2: leaders add partitions to a transaction by themselves and every end raises the epoch, so that an
end which is repeated can be told from the end of another transaction. Elsewhere it is version 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.client.batching import Identity
from tidelog.client.coordinator import UNCLEAR, Coordinator, Versions
from tidelog.client.faults import NetworkError, UnsupportedApiError
from tidelog.client.metadata import Cluster
from tidelog.client.operation import Action, Operation, action_for, by_topic, retrying
from tidelog.client.settings import TransactionSettings
from tidelog.client.transaction_faults import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
    TransactionUncertainError,
    TwoPhaseUnsupportedError,
)
from tidelog.client.transaction_view import ABORTED_STATES, COMMITTED_STATES, try_describe
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from tidelog.version import VERSION

_FEATURE: Final = "transaction.version"
# From this version on a producer that comes back names the id and epoch that it holds.
_INIT_EXPECTED_VERSION: Final = 3
# This one lets a transaction outlive its producer and every time-out (KIP-939).
_INIT_TWO_PHASE_VERSION: Final = 6
_MEMBER_VERSION: Final = 3
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class Protocol(NamedTuple):
    """Which versions of the APIs make up one version of the transactions' protocol."""

    produce: Versions
    end: Versions
    commit_offsets: Versions
    adds_partitions: bool


VERSION_1: Final = Protocol(Versions(3, 11), Versions(0, 4), Versions(0, 4), adds_partitions=True)
VERSION_2: Final = Protocol(Versions(12), Versions(5), Versions(5), adds_partitions=False)


@dataclass(slots=True, frozen=True)
class PreparedTransaction:
    """An open transaction by its names: whoever has them can end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(slots=True, frozen=True)
class GroupMetadata:
    """In whose name offsets are committed: then a member that was replaced cannot (KIP-447).

    `generation` is the member's epoch in a group of the newer protocol (KIP-848).
    """

    group: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


def protocol_of(cluster: Cluster, coordinator: Coordinator) -> Operation[Protocol]:
    """Which version of the protocol the cluster speaks."""
    from tidelog.protocol.messages.api_versions import ApiVersionsRequest

    def attempt() -> Operation[Protocol]:
        request = ApiVersionsRequest("tidelog", VERSION)
        response = yield from coordinator.ask(cluster, "ApiVersions", request)
        levels = {each.name: each.max_version_level for each in response.finalized_features}
        return VERSION_2 if levels.get(_FEATURE, 0) >= 2 else VERSION_1

    return (yield from retrying(cluster, attempt))


class Initialized(NamedTuple):
    """Who a producer is, and who wrote the open transaction that it has taken over, if it has."""

    producer: Identity
    ongoing: Identity | None = None


def init_producer(
    cluster: Cluster,
    coordinator: Coordinator,
    settings: TransactionSettings,
    expected: Identity | None = None,
    *,
    keep_prepared: bool = False,
) -> Operation[Initialized]:
    """The id and epoch to write under; whoever wrote under the id before is fenced.

    With `expected` only if nobody else has come since: else KafkaError with PRODUCER_FENCED. That
    is also what a two-phase producer is told whose first answer was lost. What is open is aborted,
    or with `keep_prepared` taken over.
    """
    from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest

    request = InitProducerIdRequest(settings.transactional_id, settings.timeout_ms)
    oldest = 0
    if expected is not None:
        request.producer_id = expected.producer_id
        request.producer_epoch = expected.producer_epoch
        oldest = _INIT_EXPECTED_VERSION
    if settings.two_phase:
        request.enable2_pc, request.keep_prepared_txn = True, keep_prepared
        oldest = _INIT_TWO_PHASE_VERSION

    def attempt() -> Operation[Initialized]:
        response = yield from coordinator.ask(cluster, "InitProducerId", request, Versions(oldest))
        _explain_refusal(response.error_code, settings)
        coordinator.check(response.error_code)
        ongoing = None
        if response.ongoing_txn_producer_id != NO_PRODUCER_ID:
            ongoing = Identity(
                response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch
            )
        return Initialized(Identity(response.producer_id, response.producer_epoch), ongoing)

    try:
        return (yield from retrying(cluster, attempt))
    except UnsupportedApiError as error:
        if not settings.two_phase:
            raise
        raise TwoPhaseUnsupportedError(settings.transactional_id) from error


def _explain_refusal(code: int, settings: TransactionSettings) -> None:
    """Raise what the person who set up the producer can mend."""
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        text = (
            f"a time-out of {settings.timeout_ms} ms is longer than the brokers allow "
            "(transaction.max.timeout.ms); ask for a shorter one"
        )
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, text)
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and settings.two_phase:
        text = (
            f"'{settings.transactional_id}' may not leave transactions to others: it needs the "
            "permission TwoPhaseCommit, and the brokers transaction.two.phase.commit.enable=true"
        )
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)


def init_transactional_id(
    cluster: Cluster, settings: TransactionSettings, expected: Identity | None = None
) -> Operation[Identity]:
    """As `init_producer`, without a producer: so what an id has left open is aborted.

    ProducerFencedError where somebody else has come since `expected`.
    """
    coordinator = Coordinator(settings.transactional_id)
    try:
        found = yield from init_producer(cluster, coordinator, settings, expected)
    except KafkaError as error:
        if error.code not in FENCED:
            raise
        name = settings.transactional_id
        raise ProducerFencedError(name, commit_unanswered=False) from error
    return found.producer


def add_partitions(
    cluster: Cluster,
    coordinator: Coordinator,
    producer: Identity,
    partitions: Collection[TopicPartition],
) -> Operation[None]:
    """In version 1: partitions are in the transaction before anything is written to them."""
    from tidelog.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )

    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=coordinator.key,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(topic, [tp.partition for tp in group])
            for topic, group in by_topic(sorted(partitions)).items()
        ],
    )

    def attempt() -> Operation[None]:
        response = yield from coordinator.ask(
            cluster, "AddPartitionsToTxn", request, Versions(0, 3)
        )
        codes = [
            part.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]
        # Those that were not tried are so because of another.
        codes.sort(key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED)
        for code in codes:
            coordinator.check(code)

    yield from retrying(cluster, attempt)


def add_offsets(
    cluster: Cluster, coordinator: Coordinator, producer: Identity, group: str
) -> Operation[None]:
    """In version 1: the group's offsets are in the transaction before they are committed."""
    from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

    request = AddOffsetsToTxnRequest(
        coordinator.key, producer.producer_id, producer.producer_epoch, group
    )

    def attempt() -> Operation[None]:
        response = yield from coordinator.ask(cluster, "AddOffsetsToTxn", request)
        coordinator.check(response.error_code)

    yield from retrying(cluster, attempt)


@dataclass(slots=True)
class OffsetsToCommit:
    """Offsets for a transaction: the next ones to read, and in whose name."""

    transaction: PreparedTransaction
    group: GroupMetadata
    offsets: Mapping[TopicPartition, int]


def commit_transactional_offsets(
    cluster: Cluster, groups: Coordinator, wanted: OffsetsToCommit, versions: Versions
) -> Operation[None]:
    """The offsets become visible with the transaction."""
    from tidelog.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )

    who, transaction = wanted.group, wanted.transaction
    request = TxnOffsetCommitRequest(
        transaction.transactional_id,
        who.group,
        transaction.producer_id,
        transaction.producer_epoch,
        who.generation,
        who.member_id,
        who.instance_id,
        [
            TxnOffsetCommitRequestTopic(
                topic,
                [
                    TxnOffsetCommitRequestPartition(tp.partition, wanted.offsets[tp], -1, "")
                    for tp in partitions
                ],
            )
            for topic, partitions in by_topic(wanted.offsets).items()
        ],
    )
    if who.member_id:
        versions = Versions(max(versions.oldest, _MEMBER_VERSION), versions.newest)

    def attempt() -> Operation[None]:
        response = yield from groups.ask(cluster, "TxnOffsetCommit", request, versions)
        for topic in response.topics:
            for part in topic.partitions:
                groups.check(part.error_code)

    yield from retrying(cluster, attempt)


def end(
    cluster: Cluster,
    coordinator: Coordinator,
    transaction: PreparedTransaction,
    versions: Versions,
    *,
    commit: bool,
) -> Operation[Identity]:
    """Commit or abort; with which id and epoch the producer goes on.

    KafkaError where the coordinator refuses, TransactionUncertainError where it does not answer.
    """
    from tidelog.protocol.messages.end_txn import EndTxnRequest

    request = EndTxnRequest(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, commit
    )

    def attempt() -> Operation[Identity]:
        response = yield from coordinator.ask(cluster, "EndTxn", request, versions)
        coordinator.check(response.error_code)
        if response.producer_id == NO_PRODUCER_ID or response.producer_epoch == NO_PRODUCER_EPOCH:
            return Identity(transaction.producer_id, transaction.producer_epoch)
        return Identity(response.producer_id, response.producer_epoch)

    try:
        return (yield from retrying(cluster, attempt))
    except (NetworkError, KafkaError) as error:
        if isinstance(error, KafkaError) and _is_refusal(error.code):
            raise
        raise TransactionUncertainError(transaction.transactional_id, commit, error) from error


def _is_refusal(code: ErrorCode) -> bool:
    """Whether nothing was done, for good."""
    return code not in UNCLEAR and action_for(code) is Action.FAIL


def end_transaction(
    cluster: Cluster, transaction: PreparedTransaction, *, commit: bool
) -> Operation[None]:
    """End a transaction that another process has left open; it may be asked for again.

    ProducerFencedError where the id was used since; TransactionAbortedError where it is to be
    committed and was aborted; TransactionStateError where it was committed, or nothing is open;
    TransactionUncertainError where nobody answers.
    """
    name = transaction.transactional_id
    coordinator = Coordinator(name)

    try:
        protocol = yield from protocol_of(cluster, coordinator)
    except NetworkError as error:
        raise TransactionUncertainError(name, commit, error) from error
    try:
        yield from end(cluster, coordinator, transaction, protocol.end, commit=commit)
    except KafkaError as error:
        if error.code not in REFUSED_ENDS:
            raise
        found = yield from try_describe(cluster, name)
        ended = Identity(transaction.producer_id, transaction.producer_epoch + 1)
        if found is not None and found.producer == ended:
            if found.state in ABORTED_STATES:
                raise TransactionAbortedError(name, "it was aborted before") from error
            if found.state in COMMITTED_STATES:
                raise TransactionStateError(name, "it was committed before") from error
        if found is not None and found.producer == Identity(
            transaction.producer_id, transaction.producer_epoch
        ):
            raise TransactionStateError(name, "no transaction is open") from error
        raise ProducerFencedError(name, commit_unanswered=True) from error


# How an end is refused that is not the producer's to ask for (any more).
REFUSED_ENDS: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
