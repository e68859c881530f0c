"""Followers: one task and one connection for each leader that this broker follows.

`Fetchers.follow` says whom a partition follows; the rest runs by itself. A leader that cannot be
reached is tried again after a bounded, jittered time; a partition in trouble steps out and comes
back, as `fetch_core` says, and its trouble is counted. Answers are taken partition by partition
with turns for others between them. A log is cut in a task of its own while the others go on.

What an answer may change is the partition's decision, by the place it was asked from. Truncation
follows from a divergence that the leader names and from nothing else. An offset out of the
leader's range is looked into: where it lies below the leader's log, the replica starts over at its
start; where it lies above, the leader is asked where the epochs part.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Coroutine, Iterator
from typing import Any, Final, NamedTuple, cast

from tidelog.client.faults import ConnectError, NetworkError, error_code
from tidelog.cluster.backoff import Backoff
from tidelog.cluster.peer import PeerConnection
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.replication.fetch_core import Answered, Asked, Followed, LeaderSession
from tidelog.replication.fetchers import FetchLinks, Lag
from tidelog.replication.following import EpochEnd, FetchFrom
from tidelog.replication.ranges import Ranges
from tidelog.storage.admission import LOOP_CHECKED_BYTES
from tidelog.storage.replicated import CheckedBatches, Continuation, check_replicated

_log = logging.getLogger(__name__)

# After so long on one answer, others on the loop have their turn.
_SLICE_S: Final = 0.01
# A fetch that was sent so recently is about to be answered anyway, if there is anything.
_SETTLED_S: Final = 0.001
# A deadline that is as close as this has passed.
_OVERDUE_S: Final = 0.001
# A new leader may hear of its election later than its followers: the first refusals are nothing.
_WORTH_A_LINE: Final = 6


class _Sent(NamedTuple):
    asked: Asked
    answer: asyncio.Future[object]
    at: float


class LeaderFetcher:
    """The fetches from one leader."""

    def __init__(
        self,
        leader_id: int,
        links: FetchLinks,
        failures: Counter[str],
        cuts: dict[asyncio.Task[None], None],
    ) -> None:
        self.leader_id = leader_id
        self._links = links
        self._clock = links.host.clock
        self._failures = failures
        self.session = LeaderSession(links.settings, links.host.random, self._has_news)
        self._backoff = Backoff(links.host.random)
        self._peer: PeerConnection | None = None
        # Requests under way, the older first; two only where the second cuts the first one short.
        self._sent: deque[_Sent] = deque()
        self._is_taking = False
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._news_timer: asyncio.TimerHandle | None = None
        self._ranges = Ranges(self)
        self._cuts = cuts
        self._answered_at: float | None = None
        self._is_failing = False
        self._started_at = self._clock.monotonic()
        self._watch_answers()
        self.task = asyncio.create_task(self._run(), name=f"fetch from broker {leader_id}")

    def stop(self) -> None:
        self.session.close()
        self.task.cancel()
        for timer in (self._timer, self._news_timer, self._watch):
            if timer is not None:
                timer.cancel()

    def lags(self) -> Iterator[Lag]:
        now = self._clock.monotonic()
        wait_s = self._links.settings.wait_max_ms / 1000
        heard_at = self._started_at if self._answered_at is None else self._answered_at
        silent_s = max(0.0, now - heard_at - 2 * wait_s)
        for each in self.session.followed.values():
            records = max(0, each.high_watermark - each.partition.log_end_offset)
            behind_s = 0.0 if each.behind_since is None else now - each.behind_since
            yield Lag(each.partition.topic_partition, records, max(silent_s, behind_s))

    # -- one connection after the other -----------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._speak()
            except TidelogError as error:
                self._lost(error)
            except Exception as error:
                _log.exception("fetching from a leader failed leader=%d", self.leader_id)
                self._lost(error)
            finally:
                self._sent.clear()
                self._ranges.forget()
                self._is_taking = False
                if self._peer is not None:
                    self._peer.close()
                    self._peer = None
            await asyncio.sleep(self._backoff.next_s())

    def _lost(self, error: Exception) -> None:
        self._failures["connection"] += 1
        if not self._is_failing:
            self._is_failing = True
            _log.warning("cannot fetch from leader=%d error=%s", self.leader_id, error)

    async def _speak(self) -> None:
        peer = self._links.open_peer(self.leader_id)
        if peer is None:
            raise ConnectError(f"broker {self.leader_id}", "the metadata has no address of it")
        self._peer = peer
        self.session.start_over()
        await peer.connect(self._links.settings.socket_timeout_ms / 1000)
        while True:
            if not self._sent and not self._send():
                await self._wait_for_news()
                continue
            sent = self._sent[0]
            response = await self._answer_to(sent)
            self._sent.popleft()
            self._is_taking = True
            await self._take(sent.asked, response)
            if not self._sent:
                # Another answer would come before that to a question about ranges.
                await self._ranges.look_up(peer)
            self._is_taking = False
            peer.resume()

    async def _wait_for_news(self) -> None:
        self._wake.clear()
        self._set_timer()
        await self._wake.wait()

    def _send(self) -> bool:
        """Ask for what there is to be asked for now; False where there is nothing."""
        assert self._peer is not None
        now = self._clock.monotonic()
        self.session.wake_due(now)
        quota = self._links.quota
        self.session.limit(quota.left(now), quota.window_ends_at)
        settings = self._links.settings
        asked = self.session.next_request(self._links.replica(), settings.wait_max_ms)
        if asked is None:
            return False
        self._sent.append(_Sent(asked, self._peer.send("Fetch", asked.request), now))
        self._set_timer()
        return True

    async def _answer_to(self, sent: _Sent) -> FetchResponse:
        outcome = await sent.answer
        if isinstance(outcome, TidelogError):
            raise outcome
        return cast(FetchResponse, outcome)

    def _watch_answers(self) -> None:
        """End a connection on which an answer is overdue. One timer watches all of them."""
        settings = self._links.settings
        timeout_s = (settings.wait_max_ms + settings.socket_timeout_ms) / 1000
        left_s = timeout_s
        if self._sent and not self._is_taking:
            left_s += self._sent[0].at - self._clock.monotonic()
        if left_s < _OVERDUE_S and self._peer is not None:
            self._failures["timeout"] += 1
            self._peer.close()
            left_s = timeout_s
        wait_s = max(left_s, _OVERDUE_S)
        self._watch = asyncio.get_running_loop().call_later(wait_s, self._watch_answers)

    # -- news for the leader ----------------------------------------------------------------------

    def _has_news(self) -> None:
        """A partition has another place: let the leader know, though a fetch may wait there."""
        self._wake.set()
        if self._news_timer is None and self._sent:
            wait_s = max(0.0, self._sent[-1].at + _SETTLED_S - self._clock.monotonic())
            self._news_timer = asyncio.get_running_loop().call_later(wait_s, self._send_news)

    def _send_news(self) -> None:
        self._news_timer = None
        # A request whose session is not known yet cannot be followed by another; and while an
        # answer is being taken, what it changes is not known.
        can_send = len(self._sent) == 1 and not self._is_taking and not self._sent[0].asked.is_full
        if not can_send or self._sent[0].answer.done() or not self.session.has_news:
            return
        if self._peer is not None and self._peer.is_connected:
            self._send()

    def _set_timer(self) -> None:
        """Wake up when the first partition has rested."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.session.next_wake_at
        if at is not None:
            wait_s = max(0.0, at - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._rested)

    def _rested(self) -> None:
        self.session.wake_due(self._clock.monotonic())
        self._set_timer()

    # -- answers ----------------------------------------------------------------------------------

    async def _take(self, asked: Asked, response: FetchResponse) -> None:
        code = self.session.accept(asked, response)
        if code is not ErrorCode.NONE:
            self._failures[code.name] += 1
            if self._sent or not code.name.endswith(("SESSION_ID_NOT_FOUND", "SESSION_EPOCH")):
                # What is under way belongs to a session that is gone.
                raise NetworkError(f"broker {self.leader_id}", f"it answers {code.name}")
            return
        began = self._answered_at = self._clock.monotonic()
        if self._is_failing:
            self._is_failing = False
            _log.info("fetching again from leader=%d", self.leader_id)
        self._backoff.reset()
        for answered in self.session.parts(asked, response):
            await self._take_part(answered)
            if self._clock.monotonic() - began > _SLICE_S:
                await asyncio.sleep(0)
                began = self._clock.monotonic()

    async def _take_part(self, answered: Answered) -> None:
        followed, asked, data = answered
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._ranges.add(followed, asked)
        elif data.error_code:
            self.trouble(followed, error_code(data.error_code).name)
        elif data.diverging_epoch is not None:
            end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            self.cut(followed, followed.partition.truncate_to(asked, end))
        else:
            await self._append(answered)

    async def _append(self, answered: Answered) -> None:
        followed, asked, data = answered
        partition = followed.partition
        records = memoryview(cast(bytes, data.records or b""))
        try:
            is_taken = partition.append_from_leader(
                asked, await self._checked(asked, records), data.high_watermark,
                data.log_start_offset,
            )  # fmt: skip
        except KafkaError as error:
            self.trouble(followed, error.code.name, error)
            return
        except Exception as error:
            self.trouble(followed, type(error).__name__, error)
            return
        if not is_taken:
            return
        if records and partition.log_end_offset == asked.offset:
            self.trouble(followed, "NO_WHOLE_BATCH")
            return
        self.session.went_well(followed)
        if followed.is_throttled:
            self._links.quota.spend(len(records), self._clock.monotonic())
        followed.high_watermark = data.high_watermark
        followed.is_behind = partition.log_end_offset < data.high_watermark
        if not followed.is_behind:
            followed.behind_since = None
        elif followed.behind_since is None:
            followed.behind_since = self._clock.monotonic()

    async def _checked(self, asked: FetchFrom, records: memoryview) -> memoryview | CheckedBatches:
        """The records, whose checksums are compared on a thread where that takes long."""
        if len(records) <= LOOP_CHECKED_BYTES:
            return records
        goes_on_from = Continuation(asked.offset, asked.last_epoch, asked.leader_epoch)
        return await self._links.host.offload.run(check_replicated, records, goes_on_from)

    # -- trouble ----------------------------------------------------------------------------------

    def trouble(self, followed: Followed, kind: str, error: Exception | None = None) -> None:
        """Count it, and leave this partition alone for a while."""
        self._failures[kind] += 1
        now = self._clock.monotonic()
        if followed.behind_since is None:
            followed.behind_since = now
        self.session.rest(followed, now)
        if error is not None and not isinstance(error, KafkaError):
            _log.error("cannot follow partition=%s", followed.partition.topic_partition,
                       exc_info=error)  # fmt: skip
        elif followed.rests == _WORTH_A_LINE or (error is not None and followed.rests == 1):
            _log.warning(
                "a replica cannot follow its leader partition=%s leader=%d tries=%d error=%s",
                followed.partition.topic_partition, self.leader_id, followed.rests, error or kind,
            )  # fmt: skip

    def cut(self, followed: Followed, work: Coroutine[Any, Any, bool]) -> None:
        """Change a log in a task of its own; the partition asks for nothing until it is done."""
        if followed.is_busy:
            work.close()
            return
        followed.is_busy = True
        task = asyncio.create_task(
            self._cut(followed, work), name=f"cut {followed.partition.topic_partition}"
        )
        self._cuts[task] = None
        task.add_done_callback(self._cuts.pop)

    async def _cut(self, followed: Followed, work: Coroutine[Any, Any, bool]) -> None:
        try:
            await work
        except Exception as error:
            kind = error.code.name if isinstance(error, KafkaError) else type(error).__name__
            self.trouble(followed, kind, error)
        finally:
            followed.is_busy = False
            self.session.place_changed(followed)

    @property
    def replica_id(self) -> int:
        return self._links.replica().replica_id

    @property
    def timeout_s(self) -> float:
        return self._links.settings.socket_timeout_ms / 1000
