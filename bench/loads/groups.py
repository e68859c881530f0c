"""Members of consumer groups by the thousand, each on a connection of its own, as real clients are.

One process with one event loop drives them all. A slow client must not pass for a slow broker, so
the time of an answer is what the kernel stamps on it when it arrives, and that of a request is
taken right before it is sent. How late the client's own timers were is part of the result.

Members that settle together beat and commit together. They are measured as they are, and then with
their periods spread evenly, as those of a fleet are that has run for a while.
"""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterable

import uvloop

from bench import group_wire
from bench.group_wire import Membership
from bench.measure import Stopwatch, percentile, resident_mb
from bench.wire import Connection

_FIND, _JOIN, _SYNC, _HEARTBEAT, _COMMIT = range(1, 6)
_HEARTBEAT_INTERVAL_S = 3.0
_COMMIT_INTERVAL_S = 5.0
_COMMITTED_AT_ONCE = 10
_RETRY_S = 0.1
# How many members may be on their way to their first answer: more would overflow the backlog of a
# listening socket, and then the kernel's patience is measured.
_STARTING_MAX = 40
_STABLE_TIMEOUT_S = 180.0
# How long members are measured in step, as they have settled.
_IN_STEP_S = 9.0
# Linux: have the kernel say when data arrived (SO_TIMESTAMPNS), as seconds and nanoseconds.
_STAMPED = 35
_STAMP = struct.Struct("qq")
_RECEIVED_BYTES_MAX = 64 * 1024

# What a member does about an error: look again, join anew, or join with the id that it was given.
_NOT_YET = (14, 15, 16)
_REJOIN = (22, 27)
_UNKNOWN_MEMBER = 25
_MEMBER_ID_REQUIRED = 79


def group_name(number: int) -> str:
    return f"bench-group-{number}"


def committed_offsets(group: int, partitions: Iterable[int]) -> dict[int, int]:
    """What `commit` commits for a group: another offset for each of its partitions."""
    return {partition: 1 + group * 1_000 + partition for partition in partitions}


class Fleet:
    """All members together: what they share, and what was seen of the broker."""

    def __init__(self, topic: str, partitions: int, members: int, *, commits: bool = True) -> None:
        self.topic = topic
        self.partitions = partitions
        self.members = members
        self.commits_too = commits
        self.starting = asyncio.Semaphore(_STARTING_MAX)
        self.settled = 0
        self.stable = asyncio.Event()
        self.stable_at = 0.0
        self.heartbeats_ms: list[float] = []
        self.commits_ms: list[float] = []
        self.rebalances = 0
        self.late_s: list[float] = []
        self._failure: str | None = None

    def member_settled(self) -> None:
        self.settled += 1
        if self.settled == self.members:
            self.stable_at = time.perf_counter()
            self.stable.set()

    def member_unsettled(self) -> None:
        self.settled -= 1
        self.rebalances += 1
        self.stable.clear()

    def fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self.stable.set()

    def check(self) -> None:
        """All are members, and stayed so."""
        if self._failure is not None or self.settled < self.members:
            reason = self._failure or f"{self.rebalances} rejoined"
            raise RuntimeError(f"{self.settled} of {self.members} are members: {reason}")

    def measured(self, prefix: str = "") -> dict[str, float]:
        """What answers took since this was asked last."""
        beats_ms, self.heartbeats_ms = self.heartbeats_ms, []
        commits_ms, self.commits_ms = self.commits_ms, []
        result = {
            f"{prefix}heartbeats": len(beats_ms),
            f"{prefix}commits": len(commits_ms),
            f"{prefix}p50_ms": percentile(beats_ms, 0.5),
            f"{prefix}p99_ms": percentile(beats_ms, 0.99),
        }
        if commits_ms:
            result[f"{prefix}commits_p99_ms"] = percentile(commits_ms, 0.99)
        return result

    def watch_own_lateness(self) -> None:
        """Every 10 ms: how much later than wanted this process comes to its work."""
        loop, due = asyncio.get_running_loop(), time.perf_counter() + 0.01

        def woken() -> None:
            self.late_s.append(max(0.0, time.perf_counter() - due))
            self.watch_own_lateness()

        loop.call_later(0.01, woken)


class GroupMember:
    """One member: finds its coordinator, joins, syncs, then beats and commits until the end."""

    def __init__(self, fleet: Fleet, group: str) -> None:
        self._fleet = fleet
        self._loop = asyncio.get_running_loop()
        self._who = Membership(group)
        self._socket = socket.socket()
        self._received = b""
        self._received_ns = 0
        self._owned: list[int] = []
        self._is_settled = False
        self._is_admitted = False
        self._beat_sent_ns = 0
        self._committed = 0
        self._commit_sent_ns = 0
        self._beating: asyncio.TimerHandle | None = None
        self._committing: asyncio.TimerHandle | None = None
        self._answers: dict[int, Callable[[bytes], None]] = {
            _FIND: self._found,
            _JOIN: self._joined,
            _SYNC: self._synced,
            _HEARTBEAT: self._beaten,
            _COMMIT: self._was_committed,
        }

    async def connect(self, port: int) -> None:
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, _STAMPED, 1)
        await self._loop.sock_connect(self._socket, ("127.0.0.1", port))
        self._loop.add_reader(self._socket, self._readable)
        self._find()

    def _readable(self) -> None:
        try:
            data, stamps, _, _ = self._socket.recvmsg(_RECEIVED_BYTES_MAX, 64)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(str(error))
            return
        if not data:
            self._lost("by the broker")
            return
        seconds, nanoseconds = _STAMP.unpack(stamps[0][2][: _STAMP.size])
        self._received_ns = seconds * 1_000_000_000 + nanoseconds
        self._take(data)

    def _lost(self, reason: str) -> None:
        self.close()
        self._fleet.fail(f"a connection was closed: {reason}")

    def _take(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        position = 0
        while len(received) - position >= 4:
            (size,) = struct.unpack_from(">i", received, position)
            if len(received) - position < 4 + size:
                break
            answer = received[position + 4 : position + 4 + size]
            position += 4 + size
            self._answers[struct.unpack_from(">i", answer)[0]](answer)
        self._received = received[position:]

    def stop(self) -> None:
        for timer in (self._beating, self._committing):
            if timer is not None:
                timer.cancel()
        self._beating = self._committing = None

    def close(self) -> None:
        self.stop()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def spread(self, chance: random.Random) -> None:
        """Begin the periods anew, each at any point of it."""
        if self._beating is not None:
            self._beating.cancel()
            wait_s = chance.uniform(0, _HEARTBEAT_INTERVAL_S)
            self._beating = self._loop.call_later(wait_s, self._beat)
        if self._committing is not None:
            self._committing.cancel()
            wait_s = chance.uniform(0, _COMMIT_INTERVAL_S)
            self._committing = self._loop.call_later(wait_s, self._commit)

    def _send(self, request: bytes) -> int:
        """When it was sent."""
        sent_ns = time.time_ns()
        if self._socket.send(request) != len(request):
            self._fleet.fail("a request did not fit into the socket's buffer")
        return sent_ns

    # To a place in the group

    def _find(self) -> None:
        self._send(group_wire.find_coordinator_frame(self._who.group, _FIND))

    def _found(self, answer: bytes) -> None:
        error = group_wire.error_of(answer)
        if error in _NOT_YET:
            self._loop.call_later(_RETRY_S, self._find)
            return
        if error:
            self._fleet.fail(f"FindCoordinator: error {error}")
        if not self._is_admitted:
            self._is_admitted = True
            self._fleet.starting.release()
        self._join()

    def _join(self) -> None:
        self.stop()
        who = self._who
        self._send(group_wire.join_frame(who.group, who.member_id, self._fleet.topic, _JOIN))

    def _joined(self, answer: bytes) -> None:
        joined = group_wire.joined(answer)
        if joined.error == _MEMBER_ID_REQUIRED:
            self._who = Membership(self._who.group, -1, joined.member_id)
            self._join()
        elif joined.error in _NOT_YET:
            self._loop.call_later(_RETRY_S, self._join)
        elif joined.error in (*_REJOIN, _UNKNOWN_MEMBER):
            self._rejoin(joined.error)
        elif joined.error:
            self._fleet.fail(f"JoinGroup: error {joined.error}")
        else:
            self._who = Membership(self._who.group, joined.generation, joined.member_id)
            assigned = {}
            if joined.members:
                shares = group_wire.range_assignments(
                    joined.members, self._fleet.topic, self._fleet.partitions
                )
                assigned = {member_id: data for member_id, (_, data) in shares.items()}
            self._send(group_wire.sync_frame(self._who, assigned, _SYNC))

    def _synced(self, answer: bytes) -> None:
        error = group_wire.error_of(answer)
        if error:
            self._rejoin(error)
            return
        self._owned = group_wire.assigned_partitions(answer)
        self._is_settled = True
        self._fleet.member_settled()
        self._beating = self._loop.call_later(_HEARTBEAT_INTERVAL_S, self._beat)
        if self._fleet.commits_too:
            self._committing = self._loop.call_later(_COMMIT_INTERVAL_S, self._commit)

    def _rejoin(self, error: int) -> None:
        if error == _UNKNOWN_MEMBER:
            self._who = Membership(self._who.group)
        elif error not in (*_REJOIN, *_NOT_YET):
            self._fleet.fail(f"error {error} from the coordinator")
            return
        if self._is_settled:
            self._is_settled = False
            self._fleet.member_unsettled()
        if error in _NOT_YET:
            self.stop()
            self._loop.call_later(_RETRY_S, self._find)
        else:
            self._join()

    # In the group

    def _beat(self) -> None:
        self._beating = None
        request = group_wire.heartbeat_frame(self._who, _HEARTBEAT)
        self._beat_sent_ns = self._send(request)

    def _beaten(self, answer: bytes) -> None:
        took_ms = (self._received_ns - self._beat_sent_ns) / 1e6
        self._fleet.heartbeats_ms.append(took_ms)
        error = group_wire.error_of(answer)
        if error:
            self._rejoin(error)
            return
        wait_s = max(0.0, _HEARTBEAT_INTERVAL_S - took_ms / 1000)
        self._beating = self._loop.call_later(wait_s, self._beat)

    def _commit(self) -> None:
        self._committing = None
        self._committed += 1
        offsets = dict.fromkeys(self._owned, self._committed)
        request = group_wire.commit_frame(self._who, self._fleet.topic, offsets, _COMMIT)
        self._commit_sent_ns = self._send(request)

    def _was_committed(self, answer: bytes) -> None:
        errors = set(group_wire.commit_errors(answer))
        took_ms = (self._received_ns - self._commit_sent_ns) / 1e6
        self._fleet.commits_ms.append(took_ms)
        wait_s = max(0.0, _COMMIT_INTERVAL_S - took_ms / 1000)
        self._committing = self._loop.call_later(wait_s, self._commit)
        # The next heartbeat tells what to do about a rebalance.
        if not errors <= {0, *_REJOIN, _UNKNOWN_MEMBER}:
            self._fleet.fail(f"OffsetCommit: errors {errors}")


async def _start_all(fleet: Fleet, members: list[GroupMember], port: int) -> None:
    for member in members:
        await fleet.starting.acquire()
        await member.connect(port)
    await fleet.stable.wait()
    fleet.check()


async def _run(fleet: Fleet, groups: int, port: int, pid: int, hold_s: float) -> dict[str, float]:
    names = [group_name(number % groups) for number in range(fleet.members)]
    # As a fleet comes up: in no order, but the same in every run.
    chance = random.Random(1)
    chance.shuffle(names)
    members = [GroupMember(fleet, group) for group in names]
    stopwatch, start = Stopwatch(pid), time.perf_counter()
    try:
        await asyncio.wait_for(_start_all(fleet, members, port), _STABLE_TIMEOUT_S)
        joining = stopwatch.result()
        fleet.rebalances, fleet.heartbeats_ms, fleet.commits_ms = 0, [], []
        await asyncio.sleep(min(_IN_STEP_S, hold_s))
        in_step = fleet.measured("in_step_")
        for member in members:
            member.spread(chance)
        fleet.watch_own_lateness()
        stopwatch, own_cpu_s = Stopwatch(pid), time.process_time()
        await asyncio.sleep(hold_s)
        own_cpu_s = time.process_time() - own_cpu_s
        holding, resident = stopwatch.result(), resident_mb(pid)
        fleet.check()
    finally:
        for member in members:
            member.close()
    return {
        "elapsed_s": fleet.stable_at - start,
        "cpu_s": joining["cpu_user_s"] + joining["cpu_system_s"],
        "holding_cores": (holding["cpu_user_s"] + holding["cpu_system_s"]) / hold_s,
        **fleet.measured(),
        **in_step,
        "resident_mb": resident,
        "client_cores": own_cpu_s / hold_s,
        "client_late_p99_ms": percentile(fleet.late_s, 0.99) * 1000,
    }


def hold(
    port: int,
    pid: int,
    topic: str,
    groups: int,
    members: int,
    partitions: int,
    hold_s: float,
    commits: bool = True,
) -> dict[str, float]:
    """Bring `members` members of each group up, all at once, and keep them for `hold_s`."""
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))

    async def run() -> dict[str, float]:
        fleet = Fleet(topic, partitions, groups * members, commits=commits)
        return await _run(fleet, groups, port, pid, hold_s)

    return uvloop.run(run())


def commit(port: int, pid: int, topic: str, groups: int, partitions: int) -> dict[str, float]:
    """Offsets of every partition for each group, ten to a request, as consumers commit them."""
    connection, stopwatch = Connection(port), Stopwatch(pid)
    for number in range(groups):
        find = group_wire.find_coordinator_frame(group_name(number))
        while group_wire.error_of(connection.ask(find)):
            time.sleep(_RETRY_S)
        frames = []
        for first in range(0, partitions, _COMMITTED_AT_ONCE):
            some = range(first, min(first + _COMMITTED_AT_ONCE, partitions))
            offsets = committed_offsets(number, some)
            frames.append(group_wire.commit_frame(Membership(group_name(number)), topic, offsets))
        while not _all_committed(connection, frames):
            time.sleep(_RETRY_S)
    connection.close()
    return stopwatch.result(offsets=groups * partitions)


def _all_committed(connection: Connection, frames: list[bytes]) -> bool:
    """False where the coordinator is not ready; other errors are raised."""
    connection.socket.sendall(b"".join(frames))
    answers = [connection.answer() for _ in frames]
    errors = {error for answer in answers for error in group_wire.commit_errors(answer)}
    if not errors <= {0, *_NOT_YET}:
        raise RuntimeError(f"OffsetCommit: errors {errors}")
    return errors == {0}
