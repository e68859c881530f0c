"""Holds clients to their quotas, as Kafka does: answer first, then do not read for a while.

What a client uses is counted when its answer is made. Beyond its quota the answer says how long the
client should wait (`throttle_time_ms`), leaves at once, and the connection is muted for that time,
whether the client waits or not. A fetch beyond its quota is answered without records and counts
nothing; one whose first batch alone is more than all windows allow gets it, and waits afterwards,
since it would never get on. Creating and deleting partitions draws tokens; newer versions of those
requests are refused with THROTTLING_QUOTA_EXCEEDED while tokens are owed. The controller's broker
counts them for the whole cluster; the broker that the client asks has it wait.

Time of requests is what they keep the event loop busy: 100 percent is all that one broker has.
Brokers are exempt, and so are the messages of SASL. While no quota is set, `is_on` is False and a
request costs one look at it.

What is known of clients is bounded; those that were not heard of for longest are forgotten first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from tidelog.cluster.controller_link import Charged, Mutations
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.clock import Clock
from tidelog.protocol.apis import SASL_KEYS
from tidelog.security.quota_entities import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from tidelog.security.quotas import QuotaTable, Rate, TokenBucket, Windows
from tidelog.server.metrics import by, metric

if TYPE_CHECKING:
    from tidelog.server.connection import Connection
    from tidelog.server.context import RequestContext

T = TypeVar("T")
# What the controller makes of mutations; None where this broker is to judge by itself.
AtController = Callable[[Mutations], Awaitable[Charged | None]]

PRODUCE_KEY: Final = 0
CLIENT_KINDS: Final = (
    PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE,
)  # fmt: skip
_CLIENTS_MAX: Final = 20_000
_ADDRESSES_MAX: Final = 10_000
_FETCH_BYTES_MAX: Final = (1 << 31) - 1


class QuotaWindows(NamedTuple):
    """Over which time clients are measured."""

    clients: Windows
    mutations: Windows


DEFAULT_WINDOWS: Final = QuotaWindows(Windows(), Windows())


class Meter:
    """What all who share a quota have used of it."""

    __slots__ = ("__weakref__", "bucket", "kind", "limit", "rate", "sharers")

    def __init__(self, kind: str, sharers: tuple[str, str], windows: QuotaWindows) -> None:
        self.kind = kind
        self.sharers = sharers
        self.limit = 0.0
        self.rate = Rate(windows.clients)
        self.bucket = TokenBucket(windows.mutations)

    def record(self, value: float, now_ms: int) -> int:
        """Count so much; how long the client must wait."""
        self.rate.record(value, now_ms)
        return self.rate.throttle_ms(self.limit, now_ms)


class Client:
    """The quotas of one user with one client id; None where nothing limits it."""

    __slots__ = ("fetch", "mutation", "produce", "request")

    def __init__(self, produce: Meter | None, fetch: Meter | None, *others: Meter | None) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request, self.mutation = others


class LoopUse:
    """How long the requests of a connection have kept the loop busy, since that was charged."""

    __slots__ = ("_began_at", "_seconds")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._began_at: float | None = None

    def begin(self, now: float) -> None:
        self.end(now)
        self._began_at = now

    def end(self, now: float) -> None:
        if self._began_at is not None:
            self._seconds += now - self._began_at
            self._began_at = None

    def take(self, now: float) -> float:
        """All up to now, which is charged then; what is under way goes on."""
        if self._began_at is not None:
            self.begin(now)
        seconds, self._seconds = self._seconds, 0.0
        return seconds


@dataclass(slots=True)
class Throttled:
    """Who was throttled, by the kind of the quota."""

    answers: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    # Until when, by those who share the quota.
    until: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict)
    connections: int = 0

    def count(self, meter: Meter, seconds: float, now: float) -> None:
        kind = meter.kind
        self.answers[kind] = self.answers.get(kind, 0) + 1
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds
        until = self.until.setdefault(kind, {})
        if len(until) >= _CLIENTS_MAX:
            self.clients(now)
        until[meter.sharers] = max(until.get(meter.sharers, 0.0), now + seconds)

    def clients(self, now: float) -> dict[str, int]:
        """How many must wait now; those who need not any more are forgotten."""
        for kind, until in self.until.items():
            self.until[kind] = {who: when for who, when in until.items() if when > now}
        return {kind: len(self.until.get(kind, ())) for kind in CLIENT_KINDS}


class MutationQuota:
    """The changes of metadata that one request asks for, as its client's quota sees them."""

    def __init__(
        self, throttling: Throttling, who: tuple[str, str] | None, *, is_strict: bool
    ) -> None:
        self._throttling = throttling
        self._who = who
        self._is_strict = is_strict
        self.throttle_ms = 0

    async def take(
        self, counts: Sequence[int], at_controller: AtController
    ) -> list[KafkaError | None]:
        """Count the partitions of each topic that are to come or to go; an error for each topic
        that must wait. Nought is never refused."""
        errors: list[KafkaError | None] = [None] * len(counts)
        asked = [index for index, count in enumerate(counts) if count]
        if not asked or self._who is None or not self._throttling.limits_mutations(*self._who):
            return errors
        mutations = Mutations(*self._who, self._is_strict, [counts[index] for index in asked])
        charged = await at_controller(mutations) or self._throttling.charge(mutations)
        self.throttle_ms = charged.throttle_ms
        for index in asked[charged.taken :]:
            errors[index] = KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"the quota {CONTROLLER_MUTATION_RATE} is used up;"
                f" try again in {charged.throttle_ms} ms",
            )
        return errors


@dataclass(slots=True)
class QuotaUse:
    """What the handler of a request has found out about the quotas of its client."""

    throttle_ms: int | None = None
    mutations: MutationQuota | None = None


def _user_of(connection: Connection) -> str:
    return connection.principal.name.removeprefix("User:")


class Throttling:
    """The quotas of one broker, and what its clients have used of them."""

    def __init__(self, clock: Clock, windows: QuotaWindows = DEFAULT_WINDOWS) -> None:
        self._clock = clock
        self._windows = windows
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._table = QuotaTable(self._quotas)
        # By user and client id, those heard of last at the end; emptied when quotas change.
        self._clients: dict[tuple[str, str], Client] = {}
        # Those before that: they keep their meters until they are heard of again.
        self._before: dict[tuple[str, str], Client] = {}
        # By kind and sharers, for as long as a client has them.
        self._meters: WeakValueDictionary[tuple[str, tuple[str, str]], Meter]
        self._meters = WeakValueDictionary()
        self._addresses: dict[str, Rate] = {}
        # Some client has a quota; some has one for the time of its requests.
        self.is_on = self.times_requests = False
        # Those who hear whether requests are timed.
        self.on_timing: list[Callable[[bool], None]] = []
        self.throttled = Throttled()

    def follow(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """These are the quotas from now on; what was used before still counts."""
        if quotas is self._quotas:
            return
        self._quotas = quotas
        self._table = table = QuotaTable(quotas)
        self._before, self._clients = self._clients, {}
        self.is_on = any(table.has(kind) for kind in CLIENT_KINDS)
        if self.times_requests != table.has(REQUEST_PERCENTAGE):
            self.times_requests = not self.times_requests
            for tell in self.on_timing:
                tell(self.times_requests)
        if not table.has(CONNECTION_CREATION_RATE):
            self._addresses.clear()

    # -- who ------------------------------------------------------------------------------------

    def _client_of(self, connection: Connection, client_id: str | None) -> Client | None:
        """The quotas of who asks; None for brokers, which have none."""
        principal = connection.principal
        if principal.is_broker:
            return None
        return self._client(_user_of(connection), client_id or "")

    def _client(self, user: str, client_id: str) -> Client:
        clients, who = self._clients, (user, client_id)
        found = clients.pop(who, None)
        if found is None:
            found = Client(*(self._meter(kind, user, client_id) for kind in CLIENT_KINDS))
            if len(clients) >= _CLIENTS_MAX:
                del clients[next(iter(clients))]
        clients[who] = found
        return found

    def _meter(self, kind: str, user: str, client_id: str) -> Meter | None:
        applied = self._table.find(kind, user, client_id)
        if applied is None:
            return None
        key = (kind, applied.sharers)
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = Meter(kind, applied.sharers, self._windows)
        meter.limit = applied.limit
        return meter

    # -- requests -------------------------------------------------------------------------------

    def answered(self, context: RequestContext[Any], *, is_silent: bool) -> int:
        """Count a request whose answer is made; for how many milliseconds its client must wait.

        A request that gets no answer (acks=0) is not held against the quota of time, as in Kafka.
        """
        use = context.quota_use
        if use is not None and use.throttle_ms is not None:
            return use.throttle_ms
        if context.api.key in SASL_KEYS:
            return 0
        if context.api.key == PRODUCE_KEY:
            client_id = context.header.client_id
            size = context.request_bytes
            return self.produced(context.connection, client_id, size, is_silent=is_silent)
        client = self._client_of(context.connection, context.header.client_id)
        if client is None:
            return 0
        quota = None if use is None else use.mutations
        owed = (0, None) if quota is None else (quota.throttle_ms, client.mutation)
        return self._throttle(
            context.connection, owed, self._charge_time(client, context.connection)
        )

    def produced(
        self, connection: Connection, client_id: str | None, size_bytes: int, *, is_silent: bool
    ) -> int:
        """As `answered`, for a produce of so many bytes."""
        client = self._client_of(connection, client_id)
        if client is None:
            return 0
        owed: tuple[int, Meter | None] = (0, None)
        if client.produce is not None:
            owed = (client.produce.record(size_bytes, self._now_ms()), client.produce)
        busy = (0, None) if is_silent else self._charge_time(client, connection)
        return self._throttle(connection, owed, busy)

    def fetched(self, context: RequestContext[Any], size_bytes: int) -> tuple[int, bool]:
        """Count a fetch: how long its client must wait, and whether it gets what was read."""
        connection = context.connection
        client = self._client_of(connection, context.header.client_id)
        if client is None:
            return 0, True
        busy = self._charge_time(client, connection)
        owed: tuple[int, Meter | None] = (0, None)
        now_ms, is_given = self._now_ms(), not busy[0]
        meter = client.fetch
        if meter is not None:
            is_alone = meter.rate.measure(now_ms)[0] <= 0
            owed = (meter.record(size_bytes, now_ms), meter)
            is_given = is_given and (not owed[0] or is_alone)
            if not is_given:
                meter.rate.record(-size_bytes, now_ms)
        wait_ms = self._throttle(connection, owed, busy)
        context.quota_use = QuotaUse(throttle_ms=wait_ms)
        return wait_ms, is_given

    def fetch_bytes_max(self, context: RequestContext[Any]) -> int:
        """More than this in one answer would be beyond the quota in any case."""
        client = self._client_of(context.connection, context.header.client_id)
        if client is None or client.fetch is None:
            return _FETCH_BYTES_MAX
        samples, window_ms = self._windows.clients
        return min(_FETCH_BYTES_MAX, int(client.fetch.limit * (samples - 1) * window_ms / 1000))

    def mutations(self, context: RequestContext[Any], strict_since: int) -> MutationQuota:
        """For a request that changes partitions; strict from a version on."""
        connection = context.connection
        who = None
        if not connection.principal.is_broker:
            who = _user_of(connection), context.header.client_id or ""
        quota = MutationQuota(self, who, is_strict=context.version >= strict_since)
        context.quota_use = QuotaUse(mutations=quota)
        return quota

    def limits_mutations(self, user: str, client_id: str) -> bool:
        return self.is_on and self._client(user, client_id).mutation is not None

    def charge(self, mutations: Mutations) -> Charged:
        """Count mutations, of a client here or of another broker; where it is strict, up to the
        first that must wait."""
        counts = mutations.counts
        meter = self._client(mutations.user, mutations.client_id).mutation if counts else None
        if meter is None:
            return Charged(len(counts), 0)
        bucket, limit, now_ms = meter.bucket, meter.limit, self._now_ms()
        for taken, count in enumerate(counts):
            wait_ms = bucket.throttle_ms(limit, now_ms)
            if wait_ms and mutations.is_strict:
                return Charged(taken, wait_ms)
            bucket.take(count, limit, now_ms)
        return Charged(len(counts), 0 if mutations.is_strict else bucket.throttle_ms(limit, now_ms))

    def _charge_time(self, client: Client, connection: Connection) -> tuple[int, Meter | None]:
        """Count the time that the loop was busy for a connection."""
        meter = client.request
        if meter is None:
            return 0, None
        seconds = connection.loop_use.take(self._clock.monotonic())
        wait_ms = meter.record(seconds * 100, self._now_ms())
        return min(wait_ms, self._windows.clients.window_ms), meter

    def _throttle(self, connection: Connection, *owed: tuple[int, Meter | None]) -> int:
        """Mute the connection for the longest of some waits."""
        wait_ms, meter = max(owed, key=lambda each: each[0])
        if wait_ms and meter is not None:
            seconds = wait_ms / 1000
            self.throttled.count(meter, seconds, self._clock.monotonic())
            connection.mute(seconds)
        return wait_ms

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # -- connections ----------------------------------------------------------------------------

    def connected(self, address: str) -> float:
        """Count a connection of an address: 0, or the seconds after which it is closed unread."""
        limit = self._table.connection_rate(address)
        if limit is None:
            return 0.0
        now_ms = self._now_ms()
        rate = self._addresses.pop(address, None) or Rate(self._windows.clients)
        if len(self._addresses) >= _ADDRESSES_MAX:
            del self._addresses[next(iter(self._addresses))]
        self._addresses[address] = rate
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit, now_ms), self._windows.clients.window_ms)
        if wait_ms:
            rate.record(-1, now_ms)
            self.throttled.connections += 1
        return wait_ms / 1000

    # -- what the pages show --------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """What was throttled, as Prometheus text."""
        throttled = self.throttled
        zeros = dict.fromkeys(CLIENT_KINDS, 0)
        yield from metric(
            "tidelog_throttled_answers_total",
            "Answers that asked a client to wait, per quota.",
            by("quota", zeros | throttled.answers),
        )
        yield from metric(
            "tidelog_throttled_seconds_total",
            "Seconds that clients had to wait, per quota.",
            by("quota", zeros | throttled.seconds),
        )
        yield from metric(
            "tidelog_throttled_clients",
            "Clients that must wait now, per quota.",
            by("quota", throttled.clients(self._clock.monotonic())),
        )
        yield from metric(
            "tidelog_connections_throttled_total",
            "Connections closed because their address opens too many.",
            throttled.connections,
        )


async def timed(work: Coroutine[Any, Any, T], use: LoopUse, clock: Clock) -> T:
    """The same work, with the time of each of its steps counted."""
    return await _timed(work, use, clock)


@coroutine
def _timed(work: Coroutine[Any, Any, T], use: LoopUse, clock: Clock) -> Generator[Any, Any, T]:
    sent: Any = None
    raised: BaseException | None = None
    while True:
        use.begin(clock.monotonic())
        try:
            waited = work.send(sent) if raised is None else work.throw(raised)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            use.end(clock.monotonic())
        sent = raised = None
        try:
            sent = yield waited
        except BaseException as error:
            raised = error
