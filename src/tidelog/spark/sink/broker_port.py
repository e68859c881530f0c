"""What decisions need of brokers, done by our client: the `Port` of `decisions`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Self

from tidelog.client.batching import Identity
from tidelog.client.blocking import Client
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.blocking_transactions import TransactionalProducer
from tidelog.client.connection import Call
from tidelog.client.faults import UnsupportedApiError
from tidelog.client.metadata import ANY
from tidelog.client.operation import Operation, Pause, ask, retrying, together
from tidelog.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    TransactionSettings,
)
from tidelog.client.transaction_admin import (
    TransactionFilter,
    describe_transactions,
    list_transactions,
)
from tidelog.client.transaction_view import describe_transaction
from tidelog.client.transactions import (
    PreparedTransaction,
    end_transaction,
    init_transactional_id,
)
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import Codec, Isolation
from tidelog.protocol.apis import api
from tidelog.spark.sink.decisions import (
    OPEN_STATE,
    Decision,
    ExactlyOnceError,
    KnownId,
    ids_pattern,
)
from tidelog.spark.sink.ledger import ensure_ledger, last_decision, to_record
from tidelog.version import VERSION

# A driver that dies while it writes a decision holds up the readers of the ledger for so long.
_DRIVER_TIMEOUT_MS: Final = 10_000
_TWO_PHASE_VERSION: Final = 6
_PAUSE_SECONDS: Final = 0.05


class BrokerPort:
    """The brokers, as the query whose ids begin with `prefix` sees them."""

    def __init__(
        self, servers: str, settings: ClientSettings, prefix: str, timeout_ms: int
    ) -> None:
        self.prefix = prefix
        self._servers, self._settings = servers, settings
        self._timeout_ms = timeout_ms
        self._client = Client(servers, settings)
        self._two_phase: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    @property
    def two_phase(self) -> bool:
        """Whether the brokers keep transactions open that no time-out ends (KIP-939)."""
        if self._two_phase is None:
            self._two_phase = self._client.run(self._offers_two_phase())
        return self._two_phase

    def _offers_two_phase(self) -> Operation[bool]:
        from tidelog.protocol.messages.api_versions import ApiVersionsRequest

        def attempt() -> Operation[bool]:
            request = ApiVersionsRequest("tidelog", VERSION)
            response = yield from ask(Call(ANY, "ApiVersions", request))
            key = api("InitProducerId").key
            return any(
                each.api_key == key and each.max_version >= _TWO_PHASE_VERSION
                for each in response.api_keys
            )

        return (yield from retrying(self._client.cluster, attempt))

    def take(self) -> Identity:
        ensure_ledger(self._client, on_tidelog=self.two_phase)
        settings = TransactionSettings(self.prefix, _DRIVER_TIMEOUT_MS)
        return self._client.run(init_transactional_id(self._client.cluster, settings))

    def read(self) -> Decision | None:
        settings = ConsumerSettings(isolation=Isolation.READ_COMMITTED, client=self._settings)
        with Consumer(self._servers, settings) as consumer:
            return last_decision(consumer, self.prefix)

    def write(self, driver: Identity, decision: Decision) -> Identity:
        transactions = TransactionSettings(self.prefix, _DRIVER_TIMEOUT_MS)
        settings = ProducerSettings(codec=Codec.GZIP, client=self._settings)
        with TransactionalProducer(self._servers, transactions, settings) as producer:
            producer.resume(driver)
            producer.begin()
            producer.send(to_record(self.prefix, decision))
            producer.commit()
            goes_on = producer.core.identity
        assert goes_on is not None, "a producer that has committed has an identity"
        return goes_on

    def is_driver(self, driver: Identity) -> bool:
        return self._client.run(self._is_producer(driver))

    def _is_producer(self, driver: Identity) -> Operation[bool]:
        cluster = self._client.cluster
        until = cluster.clock.monotonic() + self._settings.operation_timeout_ms / 1000
        while True:
            found = yield from describe_transaction(cluster, self.prefix)
            if found is not None and found.producer == driver:
                return True
            # Where the epochs of its id are used up, the next id is shown when its end is through.
            is_ending = found is not None and found.state.startswith("Prepare")
            if not is_ending or cluster.clock.monotonic() > until:
                return False
            yield Pause(_PAUSE_SECONDS)

    def find(self) -> Collection[KnownId]:
        cluster = self._client.cluster
        # Where ids are not used again, those that rest are of no interest, and many.
        states = () if self.two_phase else (OPEN_STATE,)
        pattern = ids_pattern(self.prefix)
        try:
            wanted = TransactionFilter(states=states, pattern=pattern)
            listed = self._client.run(list_transactions(cluster, wanted))
        except UnsupportedApiError:
            # Kafka before 4.1 takes no pattern.
            wanted = TransactionFilter(states=states)
            listed = self._client.run(list_transactions(cluster, wanted))
        start = f"{self.prefix}."
        names = {each.transactional_id for each in listed}
        names = {each for each in names if each.startswith(start)}
        found = self._client.run(describe_transactions(cluster, names))
        return [KnownId(name, each.producer, each.state) for name, each in found.items()]

    def claim(self, transactional_id: str, expected: Identity | None) -> Identity:
        settings = TransactionSettings(transactional_id, self._timeout_ms, self.two_phase)
        claimed = init_transactional_id(self._client.cluster, settings, expected)
        try:
            return self._client.run(claimed)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise
            raise ExactlyOnceError(
                "the brokers allow no transaction that is left to the driver: set"
                " transaction.two.phase.commit.enable=true there, and let the user of the sink"
                f" write under transactional ids that begin with '{self.prefix}'"
            ) from error

    def end(
        self, transactions: Sequence[PreparedTransaction], *, commit: bool
    ) -> Sequence[TidelogError | None]:
        cluster = self._client.cluster
        ends = [end_transaction(cluster, each, commit=commit) for each in transactions]
        return [each.error for each in self._client.run(together(cluster, ends))]

    def seconds(self) -> float:
        return self._client.cluster.clock.monotonic()

    def pause(self) -> None:
        self._client.run(_paused())


def _paused() -> Operation[None]:
    yield Pause(_PAUSE_SECONDS)
