"""Producers with a transactional id, each of them one that some driver holds open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.compat.driver import Delivery, Driver, record_to_json
from tests.compat.members import Member, Place
from tests.compat.wire import Record

TIMEOUT_MS = 60_000


class TransactionalProducer:
    """One producer; it has its epoch once `open` returns, with some clients once `begin` does."""

    def __init__(self, driver: Driver, name: str) -> None:
        self.name = name
        self.is_open = False
        self._driver = driver

    def open(
        self, transactional_id: str, timeout_ms: int = TIMEOUT_MS, member: Member | None = None
    ) -> TransactionalProducer:
        """Begin the producer's life; `member` is the one whose offsets it will commit."""
        self._call(
            "transaction_open",
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
            member=member.name if member else None,
        )
        self.is_open = True
        return self

    def begin(self) -> None:
        self._call("transaction_begin")

    def send(self, topic: str, records: Sequence[Record]) -> list[Delivery]:
        """What became of each record, refused ones included, once all are answered."""
        shown = self._call(
            "transaction_send", topic=topic, records=[record_to_json(each) for each in records]
        )
        return [Delivery(entry) for entry in shown]

    def deliver(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """`send` where nothing may be refused."""
        records = [Record(value, partition=partition) for value in values]
        for delivery in self.send(topic, records):
            if delivery.error is not None:
                raise delivery.error

    def add_offsets(self, member: Member, offsets: Mapping[Place, int]) -> None:
        """Have the transaction commit `offsets` for the group of this member."""
        places = [[topic, partition, offset] for (topic, partition), offset in offsets.items()]
        self._call("transaction_offsets", member=member.name, group=member.group, offsets=places)

    def commit(self) -> None:
        self._call("transaction_end", committed=True)

    def abort(self) -> None:
        self._call("transaction_end", committed=False)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._call("transaction_close")

    def _call(self, operation: str, **arguments: object) -> list[dict[str, object]]:
        answer: list[dict[str, object]] = self._driver.call(
            operation, producer=self.name, **arguments
        )
        return answer
