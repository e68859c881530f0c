"""What a broker needs for transactions: a coordinator, its markers, and what leaders ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.faults import error_code
from tidelog.cluster.commands import AllocateProducerIds, ProducerIdBlock
from tidelog.cluster.controller_link import ControllerLink
from tidelog.cluster.image import Endpoint
from tidelog.cluster.image_feed import ImageFeed
from tidelog.cluster.membership import Membership
from tidelog.cluster.peers import Peers
from tidelog.coordinators.groups.coordinator import GroupCoordinator
from tidelog.coordinators.producer_ids import ProducerIds
from tidelog.coordinators.transactions.coordinator import Codes, TransactionCoordinator
from tidelog.coordinators.transactions.markers import Marker, MarkerLinks, MarkerSender
from tidelog.coordinators.transactions.marking import Mark, MarkerWriter
from tidelog.coordinators.transactions.verification import Question, Verifier
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.host import Host
from tidelog.model import TopicPartition
from tidelog.replication.replicas import Replicas
from tidelog.server.metrics import by, metric
from tidelog.server.submitter import Submitter

if TYPE_CHECKING:
    from tidelog.cluster.peer import PeerConnection
    from tidelog.coordinators.transactions.shard import Decision

# Longer than a leader waits until a marker is committed.
_MARKERS_TIMEOUT_S: Final = 15.0


class Surroundings(NamedTuple):
    """What transactions are built on."""

    replicas: Replicas
    host: Host
    metadata: ImageFeed
    submitter: Submitter
    groups: GroupCoordinator
    ids: ProducerIds
    open_peer: Callable[[Endpoint], PeerConnection]
    listener: str


def allocated_ids(membership: Membership, link: ControllerLink) -> ProducerIds:
    """Producer ids out of blocks that the controller gives to this broker."""

    async def allocate() -> ProducerIdBlock:
        epoch = membership.broker_epoch
        block = await link.submit(AllocateProducerIds(membership.broker_id, epoch))
        assert isinstance(block, ProducerIdBlock)
        return block

    return ProducerIds(allocate)


class Transactions:
    """All of it, for one broker."""

    def __init__(self, around: Surroundings) -> None:
        replicas, host = around.replicas, around.host
        self._broker_id = replicas.standing.broker_id
        self._metadata = around.metadata
        self._listener = around.listener
        self._peers = [Peers(self._endpoint_of, around.open_peer) for _ in range(2)]
        self.coordinator = TransactionCoordinator(
            replicas, host, lambda: around.metadata.image, around.submitter.submit, around.ids
        )
        self.writer = MarkerWriter(replicas, around.groups, host.clock)
        self.sender = MarkerSender(
            MarkerLinks(
                lambda: around.metadata.image,
                self._write,
                self.coordinator.is_ours,
                self.coordinator.complete,
                host.random,
            ),
            self.coordinator.transaction_stats,
        )
        self.coordinator.on_decided = self.sender.send
        self.verifier = Verifier(self.coordinator, self._broker_id, self._ask)

    def start(self) -> None:
        self._metadata.subscribe(self.coordinator.image_changed)
        self._metadata.subscribe(self.sender.image_changed)
        self.coordinator.start()

    async def stop(self) -> None:
        self.coordinator.stop()
        await self.sender.close()
        await self.verifier.close()
        for peers in self._peers:
            peers.close()

    def lines(self) -> Iterator[str]:
        """What /metrics says of them."""
        from tidelog.coordinators.transactions.standing import Standing

        stats, standing = self.coordinator.transaction_stats, Standing()
        for shard in self.coordinator.shards():
            shard.stand(standing)
        name = "tidelog_transactions"
        yield from metric(f"{name}_open", "Transactions that have not ended.", standing.open)
        for key, value_ms, text in (
            ("oldest", standing.oldest_ms, "For how long the oldest of them is open."),
            ("overdue", standing.overdue_ms, "By how much the latest has outlived its time-out."),
            ("undecided", standing.undecided_ms, "Age of the oldest that no time-out ends."),
        ):
            yield from metric(f"{name}_{key}_seconds", text, value_ms / 1000)
        yield from metric(f"{name}_markers_waiting", "Markers still to write.", len(self.sender))
        for key, value, text in (
            ("begun", stats.begun, "Transactions that began."),
            ("committed", stats.committed, "Transactions that were committed."),
            ("markers_sent", stats.markers_sent, "Markers that were written."),
            ("markers_retried", stats.markers_retried, "Markers that had to be sent again."),
            ("verifications", self.verifier.asked, "Questions of this broker's leaders."),
            ("verifications_refused", self.verifier.refused, "Those that did not come to a yes."),
        ):
            yield from metric(f"{name}_{key}_total", text, value)
        yield from metric(
            f"{name}_aborted_total",
            "Transactions that were aborted, by cause.",
            by("cause", stats.aborted_by),
        )

    def _endpoint_of(self, broker_id: int) -> Endpoint | None:
        registration = self._metadata.image.brokers.get(broker_id)
        return None if registration is None else registration.endpoint(self._listener)

    # -- markers ----------------------------------------------------------------------------------

    async def _write(self, broker_id: int, markers: Sequence[Marker]) -> list[ErrorCode]:
        """Have a broker write markers: a code for each."""
        grouped: dict[Decision, list[TopicPartition]] = {}
        for marker in markers:
            grouped.setdefault(marker.decision, []).append(marker.partition)
        if broker_id == self._broker_id:
            codes = {
                Marker(decision, each): code
                for decision, partitions in grouped.items()
                for each, code in zip(
                    partitions, await self.writer.write(_mark(decision), partitions), strict=True
                )
            }
        else:
            codes = await self._write_there(broker_id, grouped)
        return [codes.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in markers]

    async def _write_there(
        self, broker_id: int, grouped: dict[Decision, list[TopicPartition]]
    ) -> dict[Marker, ErrorCode]:
        from tidelog.server.transaction_messages import markers_request

        request = markers_request(grouped)
        response = await self._peers[0].request(
            broker_id, "WriteTxnMarkers", request, _MARKERS_TIMEOUT_S
        )
        if len(response.markers) != len(grouped):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "not every marker was answered")
        return {
            Marker(decision, TopicPartition(topic.name, each.partition_index)): error_code(
                each.error_code
            )
            for decision, result in zip(grouped, response.markers, strict=True)
            for topic in result.topics
            for each in topic.partitions
        }

    # -- verification -----------------------------------------------------------------------------

    async def _ask(
        self, broker_id: int, questions: Sequence[Question], timeout_s: float
    ) -> list[Codes]:
        """Ask the coordinator on another broker; a transaction may be asked about only once."""
        from tidelog.server.transaction_messages import questions_request

        waiting, answers = list(questions), {}
        while waiting:
            some = {each.transactional_id: each for each in reversed(waiting)}
            request = questions_request(some.values())
            response = await self._peers[1].request(
                broker_id, "AddPartitionsToTxn", request, timeout_s
            )
            if response.error_code:
                raise KafkaError(error_code(response.error_code), "refused by the coordinator")
            for result in response.results_by_transaction:
                question = some.pop(result.transactional_id)
                answers[question] = {
                    TopicPartition(topic.name, each.partition_index): error_code(
                        each.partition_error_code
                    )
                    for topic in result.topic_results
                    for each in topic.results_by_partition
                }
            if some:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "not all was answered")
            waiting = [each for each in waiting if each not in answers]
        return [answers[each] for each in questions]


def _mark(decision: Decision) -> Mark:
    return Mark(
        *decision.producer, decision.committed, decision.coordinator_epoch, decision.version
    )
