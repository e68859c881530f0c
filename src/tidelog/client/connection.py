"""One connection to a broker as a state machine: calls and bytes in, bytes and answers out.

Promises: the versions of every API are negotiated first (KIP-511: on error 35 the request is sent
again in the version that the broker names); calls made meanwhile wait and are encoded afterwards;
any number of requests may be under way, answers are matched to them in order, and an answer that
is out of order, malformed or larger than `max_frame_bytes` is a `ProtocolError` after which the
connection is of no use. A large answer has its memory reserved once its length is known. With a
`login` the connection authenticates before the first call and again when its session is about to
end; a refusal is a `SecurityError`.

Bytes: each message is a 4-byte big-endian length and that many bytes (`protocol/framing`).

Left out: sockets, TLS, clocks and timeouts, which belong to the shells.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog._kernels import records
from tidelog.client.faults import NetworkError, UnsupportedApiError
from tidelog.errors import ErrorCode, ProtocolError, TidelogError
from tidelog.protocol.apis import Api, api
from tidelog.protocol.framing import decode_response, encode_request
from tidelog.protocol.primitives import Part
from tidelog.version import VERSION

if TYPE_CHECKING:
    from tidelog.client.login import Login, Request
    from tidelog.protocol.messages.api_versions import ApiVersionsResponse

Buffer = bytes | bytearray | memoryview
_API_VERSIONS_KEY = 18
_NEGOTIATION = -1
_LOGIN = -2
# Before it, the mechanism's messages would travel without headers.
_HANDSHAKE_VERSION_MIN = 1
_NO_CAP = 32767
# Above this, collecting a frame in pieces and joining them costs more than a buffer of its own.
_LARGE_FRAME_BYTES = 64 << 10
# What `KeptFramer` keeps from one frame to the next.
KEPT_BYTES_MAX = 16 << 20
_KEPT_BYTES_STEP = 256 << 10


@dataclass(slots=True)
class Call:
    """One request: which broker, which API, its message."""

    node: int
    api: str
    message: object
    max_version: int = _NO_CAP
    # The first version that can say what the message says.
    min_version: int = 0
    # A produce with acks=0 gets no answer; its call is over once it is sent.
    answered: bool = True
    timeout_ms: int = 0


@dataclass(slots=True)
class Answer:
    """What became of a call, named by the ticket that `send` gave out."""

    ticket: int
    outcome: object


@dataclass(slots=True)
class _Pending:
    ticket: int
    api: Api
    version: int


class Framer:
    """Cuts a stream of bytes into frames without their length prefix.

    A frame that is large has a buffer of its own as soon as its length is known; who can receive
    into memory asks for `room`, and the bytes are where they stay.
    """

    __slots__ = ("_chunks", "_filled", "_large", "_max_bytes", "_needed", "_size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._chunks: list[Buffer] = []
        self._size = 0
        self._needed = 4
        self._large: memoryview | None = None
        self._filled = 0

    @property
    def room(self) -> memoryview | None:
        """Where the rest of a large frame belongs; None where any bytes may come next."""
        return None if self._large is None else self._large[self._filled :]

    def fill(self, count: int) -> list[memoryview]:
        """`count` bytes were put into `room`; the frame, where it is whole with them."""
        assert self._large is not None
        self._filled += count
        if self._filled < len(self._large):
            return []
        frame, self._large = self._large.toreadonly(), None
        return [frame]

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take bytes as they came; give back the frames that are whole now."""
        frames: list[memoryview] = []
        room = self.room
        if room is not None:
            given = memoryview(data)
            count = min(len(room), len(given))
            room[:count] = given[:count]
            frames += self.fill(count)
            data = given[count:]
            if not data:
                # Even an empty view would keep the bytes that it is of.
                return frames
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return frames
        whole = memoryview(b"".join(self._chunks) if len(self._chunks) > 1 else data)
        position = 0
        while len(whole) - position >= 4:
            length = frame_length(whole, position, self._max_bytes)
            self._needed = 4 + length
            if len(whole) - position < self._needed:
                break
            frames.append(whole[position + 4 : position + 4 + length])
            position += self._needed
            self._needed = 4
        self._keep(whole[position:])
        return frames

    def _keep(self, rest: memoryview) -> None:
        """The beginning of a frame, until the rest of it comes."""
        if self._needed > _LARGE_FRAME_BYTES:
            self._large = memoryview(records.reserve(self._needed - 4))
            self._filled = len(rest) - 4
            self._large[: self._filled] = rest[4:]
            self._needed = 4
            rest = rest[:0]
        self._chunks = [bytes(rest)] if rest else []
        self._size = len(rest)


class KeptFramer(Framer):
    """As `Framer`, with one buffer for all frames: bytes are received where they are used.

    A frame holds until `room` is asked for after it, so its owner receives nothing before it is
    done with the frame. A frame above `KEPT_BYTES_MAX` has memory for itself alone.
    """

    __slots__ = ("_end", "_memory", "_start")

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._memory = memoryview(b"")
        # What lies between has come in and was not handed out.
        self._start = self._end = 0

    @property
    def room(self) -> memoryview:
        held = self._end - self._start
        needed = self._start_over_with(held)
        if needed > len(self._memory) or len(self._memory) > KEPT_BYTES_MAX >= needed:
            steps = 1 if needed > KEPT_BYTES_MAX else _KEPT_BYTES_STEP
            memory = memoryview(records.reserve(-(-needed // steps) * steps))
            memory[:held] = self._memory[:held]
            self._memory = memory
        return self._memory[self._end :]

    def _start_over_with(self, held: int) -> int:
        """Bring what is held to the front; how much memory its frame needs."""
        if self._start:
            self._memory[:held] = self._memory[self._start : self._end]
            self._start, self._end = 0, held
        if held < 4:
            return _KEPT_BYTES_STEP
        return 4 + frame_length(self._memory, 0, self._max_bytes)

    def fill(self, count: int) -> list[memoryview]:
        frames = []
        self._end += count
        while self._end - self._start >= 4:
            begin = self._start + 4
            end = begin + frame_length(self._memory, self._start, self._max_bytes)
            if end > self._end:
                break
            frames.append(self._memory[begin:end].toreadonly())
            self._start = end
        return frames

    def feed(self, data: Buffer) -> list[memoryview]:
        """For bytes that came elsewhere; the frames are copies, since more room may be needed."""
        frames, given = [], memoryview(data)
        while given:
            room = self.room
            count = min(len(room), len(given))
            room[:count] = given[:count]
            frames += [memoryview(bytes(frame)) for frame in self.fill(count)]
            given = given[count:]
        return frames


def frame_length(data: memoryview, position: int, max_bytes: int) -> int:
    """The length that stands before a frame; ProtocolError where it cannot be one."""
    length = int.from_bytes(data[position : position + 4], "big", signed=True)
    if 0 <= length <= max_bytes:
        return length
    head = bytes(data[position : position + 4])
    if head[:2] == b"\x15\x03":
        raise ProtocolError("the broker answers in TLS; this connection is plaintext")
    if head == b"HTTP":
        raise ProtocolError("an HTTP server answers here, not a Kafka broker")
    raise ProtocolError(f"a frame of {length} bytes is refused (limit {max_bytes})")


class Connection:
    """The protocol state of one connection; see the module's docstring."""

    def __init__(
        self,
        client_id: str,
        max_frame_bytes: int,
        address: str = "broker",
        framer: Framer | None = None,
        login: Login | None = None,
    ) -> None:
        self.address = address
        self._login = login
        self.ready = False
        self.closed = False
        self.versions: dict[int, tuple[int, int]] = {}
        self._client_id = client_id
        self._framer = framer or Framer(max_frame_bytes)
        self._tickets = 0
        self._correlation = 0
        self._waiting: deque[tuple[int, Call]] = deque()
        self._pending: deque[tuple[int, _Pending]] = deque()
        # Calls without an answer, until their bytes are written.
        self._unsent: list[int] = []
        self._output: list[Part] = []
        self._answers: list[Answer] = []
        self._negotiate(api("ApiVersions").served[1])

    @property
    def outstanding(self) -> int:
        """Calls without an answer yet."""
        return len(self._waiting) + len(self._pending) + len(self._unsent)

    def send(self, call: Call) -> int:
        """Queue a call; its answer, sooner or later, carries the ticket returned."""
        self._tickets += 1
        ticket = self._tickets
        if self.closed:
            self._answers.append(Answer(ticket, NetworkError(self.address, "connection closed")))
            return ticket
        if self.ready and self._login is not None and self._login.is_due:
            self.ready = False
            self._ask(self._login.begin())
        if self.ready:
            self._encode(ticket, call)
        else:
            self._waiting.append((ticket, call))
        return ticket

    def take_output(self) -> list[Part]:
        """The bytes to write now, handed over; `sent` when all of them are written."""
        output, self._output = self._output, []
        return output

    def sent(self) -> None:
        """All that `take_output` gave is written: calls that get no answer are over."""
        self._answers += [Answer(ticket, None) for ticket in self._unsent]
        self._unsent.clear()

    def take_answers(self) -> list[Answer]:
        """The answers that have come about since the last call, in order."""
        answers, self._answers = self._answers, []
        return answers

    def receive(self, data: Buffer) -> None:
        """Take bytes from the broker; ProtocolError where they are no answer to what was sent."""
        for frame in self._framer.feed(data):
            self._take_frame(frame)

    @property
    def room(self) -> memoryview | None:
        """Where the next bytes may be received into, before `received`; None where nowhere."""
        return self._framer.room

    def received(self, count: int) -> None:
        """As `receive`, for bytes that are in `room` already."""
        for frame in self._framer.fill(count):
            self._take_frame(frame)

    def fail(self, error: TidelogError) -> None:
        """The connection is gone: every call without an answer gets `error`."""
        self.closed = True
        self.ready = False
        tickets = [pending.ticket for _, pending in self._pending]
        tickets += self._unsent
        tickets += [ticket for ticket, _ in self._waiting]
        self._unsent.clear()
        self._pending.clear()
        self._waiting.clear()
        self._output.clear()
        self._answers += [Answer(ticket, error) for ticket in tickets if ticket > 0]

    def version_for(self, target: Api, max_version: int = _NO_CAP) -> int:
        """The newest version of an API that both sides speak; UnsupportedApiError where none."""
        if target.key not in self.versions:
            raise UnsupportedApiError(f"{self.address} does not serve {target.name}")
        oldest, newest = self.versions[target.key]
        version = min(newest, target.served[1], max_version)
        if version < max(oldest, target.served[0]):
            raise UnsupportedApiError(
                f"{self.address} serves {target.name} in versions {oldest} to {newest}, "
                f"this client needs {target.served[0]} to {min(target.served[1], max_version)}"
            )
        return version

    def _encode(self, ticket: int, call: Call) -> None:
        target = api(call.api)
        try:
            version = self.version_for(target, call.max_version)
            if version < call.min_version:
                raise UnsupportedApiError(
                    f"{self.address} serves {target.name} up to version {version},"
                    f" {call.min_version} is needed"
                )
        except UnsupportedApiError as error:
            self._answers.append(Answer(ticket, error))
            return
        self._write(_Pending(ticket, target, version), call.message, answered=call.answered)

    def _write(self, pending: _Pending, message: object, *, answered: bool = True) -> None:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        self._output += encode_request(
            pending.api, pending.version, self._correlation, self._client_id, message
        )
        if answered:
            self._pending.append((self._correlation, pending))
        else:
            self._unsent.append(pending.ticket)

    def _negotiate(self, version: int) -> None:
        target = api("ApiVersions")
        message = target.request()
        if version >= 3:
            message.client_software_name = "tidelog"
            message.client_software_version = VERSION
        self._write(_Pending(_NEGOTIATION, target, version), message)

    def _take_frame(self, frame: memoryview) -> None:
        if not self._pending:
            raise ProtocolError(f"{self.address} sent an answer that nobody asked for")
        expected, pending = self._pending.popleft()
        version = pending.version
        # Whoever does not know our version of ApiVersions answers error 35 in version 0.
        refused = pending.ticket == _NEGOTIATION and bytes(frame[4:6]) == b"\x00\x23"
        try:
            correlation, message = decode_response(pending.api, 0 if refused else version, frame)
        except ProtocolError:
            # Put it back, so that `fail` answers this call too.
            self._pending.appendleft((expected, pending))
            raise
        if correlation != expected:
            self._pending.appendleft((expected, pending))
            raise ProtocolError(
                f"{self.address} answered request {correlation} where {expected} was due"
            )
        if pending.ticket == _NEGOTIATION:
            self._negotiated(version, message)
        elif pending.ticket == _LOGIN:
            assert self._login is not None
            self._go_on(self._login.take(message))
        else:
            self._answers.append(Answer(pending.ticket, message))

    def _negotiated(self, version: int, response: ApiVersionsResponse) -> None:
        code = response.error_code
        ranges = {
            entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys
        }
        if code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            offered = ranges.get(_API_VERSIONS_KEY, (0, 0))[1]
            self._negotiate(offered if 0 <= offered < version else 0)
            return
        if code:
            raise ProtocolError(f"{self.address} refuses to name its versions: error {code}")
        self.versions = ranges
        self._go_on(None if self._login is None else self._login.begin())

    def _ask(self, request: Request) -> None:
        """Send a request of the log-in."""
        target = api(request[0])
        version = self.version_for(target)
        if target.name == "SaslHandshake" and version < _HANDSHAKE_VERSION_MIN:
            raise UnsupportedApiError(f"{self.address} serves no SASL with headers")
        self._write(_Pending(_LOGIN, target, version), request[1])

    def _go_on(self, request: Request | None) -> None:
        """The next step of the log-in; without one, calls that waited are sent."""
        if request is not None:
            self._ask(request)
            return
        self.ready = True
        waiting, self._waiting = self._waiting, deque()
        for ticket, call in waiting:
            self._encode(ticket, call)
