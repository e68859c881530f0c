"""The transactional producer on an event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from tidelog.client.aio import Producer
from tidelog.client.batching import Identity
from tidelog.client.settings import ProducerSettings, TransactionSettings
from tidelog.client.transactional import TransactionalCore
from tidelog.client.transactions import GroupMetadata, Initialized, PreparedTransaction
from tidelog.errors import TidelogError
from tidelog.host.host import Host
from tidelog.model import TopicPartition


class TransactionalProducer(Producer):
    """As `blocking_transactions.TransactionalProducer`, to be awaited.

    Tasks may send side by side; one of them begins and ends the transactions.
    """

    def __init__(
        self,
        servers: str | Iterable[str],
        transactions: TransactionSettings,
        settings: ProducerSettings | None = None,
        host: Host | None = None,
    ) -> None:
        super().__init__(servers, settings, host)
        self.transactional = TransactionalCore(
            transactions, self.settings, self.cluster, self._random
        )
        self.core = self.transactional

    async def init(self, *, keep_prepared: bool = False) -> Initialized:
        """Become the producer of the id; who was it before is fenced, its open work aborted.

        With `keep_prepared` (two-phase alone) it is not, and is ours to commit or abort.
        """
        await self.flush()
        return await self.run(self.transactional.init(keep_prepared=keep_prepared))

    async def resume(self, producer: Identity) -> None:
        """Go on as the producer that another process has become; fenced where it is no more."""
        await self.run(self.transactional.resume(producer))

    def begin(self) -> None:
        """Open a transaction."""
        self.transactional.begin()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata
    ) -> None:
        """Commit offsets, the next ones to read, with the transaction."""
        await self.run(self.transactional.send_offsets(offsets, group))

    async def commit(self) -> None:
        """Deliver all that was sent, and make it visible."""
        await self.flush()
        await self.run(self.transactional.commit())

    async def abort(self) -> None:
        """Have nothing of the transaction visible, also where it has failed."""
        self.transactional.give_up()
        await self.flush()
        await self.run(self.transactional.abort())

    async def prepare(self) -> PreparedTransaction | None:
        """Deliver all that was sent and leave it for whoever ends it; None where it is nothing."""
        await self.flush()
        return await self.run(self.transactional.settle())

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        """Abort what is open, unless it was prepared; `close` alone tells nobody."""
        try:
            if self.transactional.is_open:
                if error is None:
                    await self.abort()
                else:
                    with suppress(TidelogError):
                        await self.abort()
        finally:
            await self.close()
