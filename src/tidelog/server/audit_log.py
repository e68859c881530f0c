"""The audit log: who did what, from where, to what, with which outcome.

`record` is called on the loop, costs a dictionary and never waits. A writer off the loop appends
what has gathered, as a hash chain (`audit_file`), and syncs it. What is recorded: every
administrative request (`audited`), log-ins, denials, and decisions of the broker that an operator
must find again (`tidelog.audit`); the setting `audit.log.events` names which of them.

Bounds: log-ins that fail and denials are written at a rate, with how many each line stands for.
What waits to be written is bounded; beyond that events are dropped, counted, and the number is the
next line. While the disk does not take the log, the broker serves on and tries again; with
`audit.log.fail.closed` it refuses administrative requests meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.audit import DecisionListener
from tidelog.config import BrokerConfig
from tidelog.host.host import Host
from tidelog.host.line_rate import LineRate

if TYPE_CHECKING:
    from tidelog.server.audit_file import AuditFiles

_log = logging.getLogger(__name__)

ADMIN: Final = "admin"
AUTHENTICATION: Final = "authentication"
DENIED: Final = "denied"
DECISION: Final = "decision"

# APIs that change nothing that an administrator looks after; `audited` has a row for all others.
NOT_ADMIN: Final = frozenset(
    (
        "Produce",
        "Fetch",
        "ListOffsets",
        "OffsetForLeaderEpoch",
        "DescribeProducers",
        "OffsetsWithinBytes",
        "DescribeLogDirs",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "DescribeTransactions",
        "ListTransactions",
        "SaslHandshake",
        "SaslAuthenticate",
        "FindCoordinator",
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "OffsetFetch",
        "TxnOffsetCommit",
        "ListGroups",
        "DescribeGroups",
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "FollowMetadata",
        "SubmitCommand",
        "AlterPartition",
        "AllocateProducerIds",
        "ApiVersions",
        "Metadata",
        "DescribeCluster",
        "DescribeTopicPartitions",
        "ListPartitionReassignments",
        "ListConfigResources",
        "DescribeConfigs",
        "DescribeAcls",
        "DescribeUserScramCredentials",
        "DescribeClientQuotas",
    )
)

_NOTHING: Final[Mapping[str, object]] = {}
_WEIGHT_MAX: Final = 20_000
# Events about many things get no more than half of the room: whoever asks for tens of thousands of
# them at once must not hide what others do meanwhile.
_LARGE: Final = 100
_LARGE_WEIGHT_MAX: Final = _WEIGHT_MAX // 2
_BATCH_MAX: Final = 1_000
_RETRY_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class AuditEvent(NamedTuple):
    """One thing that happened. `resource` names what it was about, e.g. `Topic:orders`."""

    action: str
    principal: str = ""
    host: str = ""
    resource: Sequence[str] = ()
    outcome: str = "ok"
    before: object = None
    after: object = None
    request_id: str = ""
    kind: str = ADMIN
    # Whatever else belongs to it: the client id, the listener, what was asked for.
    details: Mapping[str, object] = _NOTHING

    def document(self) -> dict[str, object]:
        """The members of its line; those that say nothing are left out."""
        members = {
            "kind": self.kind,
            "action": self.action,
            "principal": self.principal,
            "host": self.host,
            "request_id": self.request_id,
            "resource": list(self.resource),
            "outcome": self.outcome,
            **self.details,
            "before": self.before,
            "after": self.after,
        }
        return {name: value for name, value in members.items() if value not in (None, "", [], {})}


class AuditSettings(NamedTuple):
    """What is recorded, and what happens when that is not possible."""

    kinds: frozenset[str] = frozenset()
    fail_closed: bool = False


class AuditLog:
    """The log of one broker; `record` is its one way in."""

    def __init__(
        self,
        open_files: Callable[[], AuditFiles] | None,
        host: Host,
        broker_id: int,
        settings: AuditSettings,
    ) -> None:
        """`open_files` is called with the first line; None where the log is off."""
        self._open_files = open_files
        self._opened: AuditFiles | None = None
        self._host = host
        self._broker_id = broker_id
        self._kinds = settings.kinds if open_files is not None else frozenset()
        self.fail_closed = settings.fail_closed and ADMIN in self._kinds
        self._rate = LineRate(host.clock)
        self._queue: deque[tuple[int, dict[str, object]]] = deque()
        self._weight = 0
        self._unsaid = 0
        self._writer: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._failures = 0
        self._is_closed = False
        self._decisions: DecisionListener | None = None
        self.recorded = 0
        self.dropped = 0
        # Why the log cannot be written, while it cannot.
        self.fault: OSError | None = None

    def start(self) -> None:
        """Hear the decisions of this process from here on; called on the broker's loop."""
        if not self.takes(DECISION):
            return
        loop = asyncio.get_running_loop()

        def heard(decision: str, facts: Mapping[str, object]) -> None:
            event = AuditEvent(decision, outcome="", kind=DECISION, details={"facts": facts})
            with suppress(RuntimeError):
                # The loop is closed where a broker was abandoned.
                loop.call_soon_threadsafe(self.record, event)

        self._decisions = DecisionListener(heard)
        self._decisions.start()

    def takes(self, kind: str) -> bool:
        """Whether events of this kind are recorded at all."""
        return kind in self._kinds

    def record(self, event: AuditEvent) -> None:
        """Take an event; it is in the file soon, or counted as dropped where there is no room."""
        if event.kind not in self._kinds or self._is_closed:
            return
        weight = 1 + len(event.resource)
        if not self._fits(weight):
            self.dropped += 1
            self._unsaid += 1
            if self._rate.count("dropped"):
                _log.error("audit log: events dropped count=%d error=%s", self.dropped, self.fault)
            return
        if self._unsaid:
            self._enqueue(1, {"kind": "log", "action": "AuditEventsDropped", "count": self._unsaid})
            self._unsaid = 0
        self.recorded += 1
        self._enqueue(weight, event.document())
        self._write_soon()

    def _fits(self, weight: int) -> bool:
        most = _LARGE_WEIGHT_MAX if weight > _LARGE else _WEIGHT_MAX
        return self._weight + weight <= most

    async def has_room(self, event: AuditEvent) -> None:
        """Return once there is room for an event, or at once where the disk takes nothing."""
        while not self._fits(1 + len(event.resource)) and self.fault is None:
            self._write_soon()
            if self._writer is None:
                return
            await asyncio.wait([self._writer])

    def record_at_rate(self, event: AuditEvent, kind: Hashable) -> None:
        """As `record`, for what a client can bring about at will: one line every ten seconds."""
        if event.kind not in self._kinds:
            return
        count = self._rate.count(kind)
        if count == 1:
            self.record(event)
        elif count:
            details = {**event.details, "stands_for": count}
            self.record(event._replace(details=details))

    async def settle(self) -> bool:
        """Wait until all that was recorded is durable; False where the disk does not take it."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._write_soon()
        if self._writer is not None:
            await asyncio.wait([self._writer])
        return self.fault is None

    async def is_writable(self) -> bool:
        """Whether the disk takes what is recorded, and has room for some more."""
        if self._open_files is None or not await self.settle():
            return False
        try:
            await self._host.offload.run(self._files.check_room)
        except OSError as error:
            if self._rate.count("room"):
                _log.error("audit log has no room error=%s", error)
            return False
        return True

    async def close(self) -> None:
        """Write what is left, and no more after that."""
        if self._open_files is None:
            return
        if self._decisions is not None:
            self._decisions.stop()
            # Those that were made on threads are still on their way to the loop.
            await asyncio.sleep(0)
        await self.settle()
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._queue:
            _log.error("audit log: events lost count=%d error=%s", len(self._queue), self.fault)
        if self._opened is None:
            return
        end = self._opened.end
        if end.seq:
            _log.info("audit log closed seq=%d hash=%s", end.seq, end.hash)
        self._opened.close()

    # -- writing ----------------------------------------------------------------------------------

    @property
    def _files(self) -> AuditFiles:
        if self._opened is None:
            assert self._open_files is not None, "a log that is off is not written"
            self._opened = self._open_files()
        return self._opened

    def _enqueue(self, weight: int, document: dict[str, object]) -> None:
        at = datetime.fromtimestamp(self._host.clock.wall_ms() / 1000, UTC)
        stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._queue.append((weight, {"time": stamp, "broker": self._broker_id, **document}))
        self._weight += weight

    def _write_soon(self) -> None:
        if self._queue and self._writer is None and self._retry is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._queue:
                count = min(len(self._queue), _BATCH_MAX)
                batch = [self._queue[index][1] for index in range(count)]
                await self._host.offload.run(self._files.append, batch)
                for _ in range(count):
                    self._weight -= self._queue.popleft()[0]
                self._recovered()
        except OSError as error:
            self._failed(error)
        finally:
            self._writer = None

    def _recovered(self) -> None:
        if self.fault is not None:
            _log.warning("audit log is written again")
        self.fault, self._failures = None, 0

    def _failed(self, error: OSError) -> None:
        if self.fault is None:
            _log.error(
                "audit log cannot be written error=%s refusing_admin_requests=%s",
                error, self.fail_closed,
            )  # fmt: skip
        self.fault = error
        delay = _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)]
        self._failures += 1
        self._retry = asyncio.get_running_loop().call_later(delay, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._write_soon()


def make_audit_log(config: BrokerConfig, data_directory: str, host: Host) -> AuditLog:
    """The log that the settings ask for; one that takes nothing where it is off."""

    def open_files() -> AuditFiles:
        from tidelog.server.audit_file import AuditFiles, FileLimits

        limits = FileLimits(
            config.get_int("audit.log.segment.bytes"), config.get_int("audit.log.retention.bytes")
        )
        return AuditFiles(data_directory, host.disk, limits)

    settings = AuditSettings(
        frozenset(config.get_list("audit.log.events")), config.get_bool("audit.log.fail.closed")
    )
    is_on = config.get_bool("audit.log.enable")
    return AuditLog(open_files if is_on else None, host, config.node_id, settings)
