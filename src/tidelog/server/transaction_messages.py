"""What brokers send each other about transactions; imported with the first of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidelog.coordinators.transactions.shard import Decision
from tidelog.coordinators.transactions.transaction import by_topic
from tidelog.coordinators.transactions.verification import Question
from tidelog.model import TopicPartition
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


def markers_request(
    decisions: Mapping[Decision, Sequence[TopicPartition]],
) -> WriteTxnMarkersRequest:
    """Have the ends of transactions written to these partitions."""
    return WriteTxnMarkersRequest([_writable(*each) for each in decisions.items()])


def questions_request(questions: Iterable[Question]) -> AddPartitionsToTxnRequest:
    """Ask about transactions, each once."""
    return AddPartitionsToTxnRequest([_asked(each) for each in questions])


def _writable(decision: Decision, partitions: Sequence[TopicPartition]) -> WritableTxnMarker:
    return WritableTxnMarker(
        *decision.producer,
        decision.committed,
        [WritableTxnMarkerTopic(each.topic, each.partition_ids) for each in by_topic(partitions)],
        decision.coordinator_epoch,
        decision.version,
    )


def _asked(question: Question) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        question.transactional_id,
        *question.producer,
        not question.adds,
        [
            AddPartitionsToTxnTopic(each.topic, each.partition_ids)
            for each in by_topic(question.partitions)
        ],
    )
