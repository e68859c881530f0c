"""The transactional producer with plain sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from tidelog.client.batching import Batch, Identity
from tidelog.client.blocking_producer import Producer
from tidelog.client.settings import ProducerSettings, TransactionSettings
from tidelog.client.transactional import TransactionalCore
from tidelog.client.transactions import GroupMetadata, Initialized, PreparedTransaction
from tidelog.errors import TidelogError
from tidelog.host.random import SystemRandom
from tidelog.model import TopicPartition


class TransactionalProducer(Producer):
    """Sends records that become visible together; `transaction_faults` says what can go wrong.

    >>> settings = TransactionSettings("orders-1")                          # doctest: +SKIP
    >>> with TransactionalProducer("127.0.0.1:9092", settings) as producer:  # doctest: +SKIP
    ...     producer.init()
    ...     producer.begin()
    ...     producer.send(ProducerRecord("orders", b"hello"))
    ...     producer.commit()
    """

    def __init__(
        self,
        servers: str | Iterable[str],
        transactions: TransactionSettings,
        settings: ProducerSettings | None = None,
        on_completed: Callable[[list[Batch]], None] | None = None,
    ) -> None:
        super().__init__(servers, settings, on_completed)
        self.transactional = TransactionalCore(
            transactions, self.settings, self.cluster, SystemRandom()
        )
        self.core = self.transactional

    def init(self, *, keep_prepared: bool = False) -> Initialized:
        """Become the producer of the id; who was it before is fenced, its open work aborted.

        With `keep_prepared` (two-phase alone) it is not, and is ours to commit or abort.
        """
        self.flush()
        return self.run(self.transactional.init(keep_prepared=keep_prepared))

    def resume(self, producer: Identity) -> None:
        """Go on as the producer that another process has become; fenced where it is no more."""
        self.run(self.transactional.resume(producer))

    def begin(self) -> None:
        """Open a transaction."""
        self.transactional.begin()

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        """Commit offsets, the next ones to read, with the transaction."""
        self.run(self.transactional.send_offsets(offsets, group))

    def commit(self) -> None:
        """Deliver all that was sent, and make it visible."""
        self.flush()
        self.run(self.transactional.commit())

    def abort(self) -> None:
        """Have nothing of the transaction visible, also where it has failed."""
        self.transactional.give_up()
        self.flush()
        self.run(self.transactional.abort())

    def prepare(self) -> PreparedTransaction | None:
        """Deliver all that was sent and leave it for whoever ends it; None where it is nothing."""
        self.flush()
        return self.run(self.transactional.settle())

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Abort what is open, unless it was prepared; `close` alone tells nobody."""
        try:
            if self.transactional.is_open:
                if error is None:
                    self.abort()
                else:
                    with suppress(TidelogError):
                        self.abort()
        finally:
            self.close()
