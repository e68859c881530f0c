"""A commit that begins like the one before it on its connection: from the frame to the group.

The commits of a member differ in their correlation id and their offsets. All between the
correlation id and the partitions is their *head*: the client, the member and its generation, the
topic. One that was decoded before, byte for byte the same, says the same again. The offsets are
read straight from the frame, and the answer is a template with a code for each partition.

Whether the client may, and which topic has the name, is looked up again each time; whether the
member may commit is the group's business, as ever. Nothing is refused here before the group has
seen it: a request that is not plain (one topic, no metadata, each partition once) is declined and
goes the long way (`offsets`). So does everything while some client has a quota.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import KafkaError, ProtocolError
from tidelog.protocol.framing import encode_response
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.primitives import encode_uvarint, read_uvarint
from tidelog.security.authorizer import Operation, Resource, ResourceType
from tidelog.server.context import ServedApi
from tidelog.server.dispatch import DECLINED, CloseConnection, Pending, Result
from tidelog.server.handlers.repeated_frame import CORRELATION_ID
from tidelog.server.tools import GroupTools, RequestTools

if TYPE_CHECKING:
    from uuid import UUID

    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.host.prompt import Prompt
    from tidelog.protocol.apis import Api
    from tidelog.server.connection import Connection

_HEAD_BYTES_MAX: Final = 1_000
_PARTITIONS_MAX: Final = 100
# From here on a partition has a leader epoch, and a topic an id instead of a name.
_VERSION_WITH_EPOCHS: Final = 6
_VERSION_WITH_TOPIC_IDS: Final = 10
_START: Final = slice(0, 4)
_COUNT: Final = struct.Struct(">i")
# A partition: its number, the offset, the leader epoch, no metadata; tags in flexible versions.
_PLAIN: Final = struct.Struct(">iqih")
_FLEXIBLE: Final = struct.Struct(">iqiBB")
_PLAIN_ENDS: Final = ((-1,), (0,))
_FLEXIBLE_ENDS: Final = ((0, 0), (1, 0))
# Behind the partitions of a flexible version: no tagged field of topic and request.
_TAIL: Final = b"\0\0"


class Head:
    """What a commit says before its partitions, and the answer up to them."""

    __slots__ = (
        "_answer", "_bytes", "_ends", "_entry", "_start", "_tail", "committer", "end", "group",
        "is_flexible", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, api: Api, version: int, request: OffsetCommitRequest) -> None:
        (topic,) = request.topics
        self.is_flexible = version >= api.flexible
        self.committer = Committer(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            version,
        )
        self.group = Resource(ResourceType.GROUP, request.group_id)
        self.topic = Resource(ResourceType.TOPIC, topic.name)
        self.topic_id = topic.topic_id if version >= _VERSION_WITH_TOPIC_IDS else None
        self._entry = _FLEXIBLE if self.is_flexible else _PLAIN
        self._ends = _FLEXIBLE_ENDS if self.is_flexible else _PLAIN_ENDS
        self._tail = _TAIL if self.is_flexible else b""
        answered = OffsetCommitResponseTopic(topic.name, topic.topic_id, [])
        (whole,) = encode_response(api, version, 0, OffsetCommitResponse(topics=[answered]))
        assert isinstance(whole, bytes), "an answer without partitions is one part"
        # It ends with the number of partitions.
        self._answer = whole[8 : len(whole) - len(self._counted(0)) - len(self._tail)]
        self._start = self._bytes = b""
        self.end = 0

    def learn(self, frame: memoryview, partitions: int) -> bool:
        """Take the bytes of a request's head; False where the rest is not plain."""
        behind = len(self._counted(partitions)) + partitions * self._entry.size + len(self._tail)
        self.end = len(frame) - behind
        if not CORRELATION_ID.stop <= self.end <= _HEAD_BYTES_MAX:
            return False
        self._start, self._bytes = (
            bytes(frame[_START]),
            bytes(frame[CORRELATION_ID.stop : self.end]),
        )
        read = self.read(frame)
        return read is not None and len(read) == partitions

    def _counted(self, partitions: int) -> bytes:
        return encode_uvarint(partitions + 1) if self.is_flexible else _COUNT.pack(partitions)

    def read(self, frame: memoryview) -> list[tuple[int, int, int]] | None:
        """Partition, offset and epoch of each; None where the frame is not made so."""
        end = self.end
        if (
            frame[CORRELATION_ID.stop : end].tobytes() != self._bytes
            or frame[_START] != self._start
        ):
            return None
        try:
            if self.is_flexible:
                count, position = read_uvarint(frame, end)
                count -= 1
            else:
                (count,), position = _COUNT.unpack_from(frame, end), end + _COUNT.size
        except (IndexError, struct.error, ProtocolError):
            return None
        tail = position + count * self._entry.size
        if not 0 < count <= _PARTITIONS_MAX or frame[tail:] != self._tail or tail > len(frame):
            return None
        read = []
        for index, offset, epoch, *ends in self._entry.iter_unpack(frame[position:tail]):
            if tuple(ends) not in self._ends:
                return None
            read.append((index, offset, epoch))
        if count > 1 and len({index for index, _, _ in read}) < count:
            return None
        return read

    def answer(self, correlation_id: bytes, commits: list[Commit], codes: list[int]) -> bytes:
        body = b"".join(
            (
                correlation_id,
                self._answer,
                self._counted(len(commits)),
                *[
                    commit.partition.to_bytes(4, "big", signed=True)
                    + code.to_bytes(2, "big", signed=True)
                    + self._tail[:1]
                    for commit, code in zip(commits, codes, strict=True)
                ],
                self._tail,
            )
        )
        return len(body).to_bytes(4, "big") + body


class Asked:
    """One commit while it is served."""

    __slots__ = ("_commits", "_head", "_id", "_shortcut", "future", "started_at")

    def __init__(
        self, shortcut: CommitShortcut, head: Head, correlation_id: bytes, commits: list[Commit]
    ) -> None:
        self._shortcut = shortcut
        self._head = head
        self._id = correlation_id
        self._commits = commits
        self.started_at = shortcut.shared.clock.monotonic()
        self.future: Prompt[list[int]]

    def commit(self, shard: GroupShard, now: Now) -> Outcome:
        return shard.commit(self._head.group.name, self._head.committer, self._commits, now)

    def refused(self, error: KafkaError) -> list[int]:
        return [error.code] * len(self._commits)

    def answer(self) -> Result:
        """The codes are there: what the client is sent."""
        if self.future.cancelled():
            raise CloseConnection("the request was cancelled")
        shortcut = self._shortcut
        answer = self._head.answer(self._id, self._commits, self.future.result())
        shortcut.metrics.response_bytes += len(answer)
        shortcut.metrics.latency.observe(shortcut.shared.clock.monotonic() - self.started_at)
        return [answer]


class CommitShortcut:
    """Serves commits that begin like the one before; see the module. One per broker."""

    def __init__(self, shared: RequestTools, served: ServedApi[GroupTools]) -> None:
        self.shared = shared
        self.metrics = served.metrics
        self._api = served.api
        self._throttling = shared.throttling
        self._coordinator = served.tools.coordinator

    def learn(
        self, frame: memoryview, version: int, request: OffsetCommitRequest, connection: Connection
    ) -> None:
        """Remember the head of a member's commit that was decoded."""
        if (
            version < _VERSION_WITH_EPOCHS
            or len(request.topics) != 1
            or not 0 < len(request.topics[0].partitions) <= _PARTITIONS_MAX
            or request.generation_id_or_member_epoch < 0
            or not request.member_id
        ):
            return
        known: Head | None = connection.known.get(self._api.key)
        if known is None or known.read(frame) is None:
            head = Head(self._api, version, request)
            if head.learn(frame, len(request.topics[0].partitions)):
                connection.known[self._api.key] = head

    def serve(self, frame: memoryview, connection: Connection) -> Result:
        """Have the offsets of a request committed whose head is known; else `DECLINED`."""
        head: Head | None = connection.known.get(self._api.key)
        if head is None or self._throttling.is_on:
            return DECLINED
        read = head.read(frame)
        topic = None if read is None else self._topic(head, connection)
        if read is None or topic is None:
            return DECLINED
        commits = [Commit(*topic, index, offset, epoch, "") for index, offset, epoch in read]
        asked = Asked(self, head, frame[CORRELATION_ID].tobytes(), commits)
        try:
            future = self._coordinator.gather(head.group.name, asked.commit, asked.refused)
        except KafkaError:
            return DECLINED
        asked.future = future
        self.metrics.requests += 1
        self.metrics.request_bytes += len(frame) + 4
        return Pending(future, asked.answer)

    def _topic(self, head: Head, connection: Connection) -> tuple[str, UUID] | None:
        """The topic's name and id; None where it is none, or the client may not commit."""
        image, topic = self.shared.metadata.image, head.topic
        name: str | None = topic.name
        if head.topic_id is not None:
            name = image.topic_names.get(head.topic_id)
            topic = Resource(ResourceType.TOPIC, name or "")
        found = None if name is None else image.topics.get(name)
        if found is None:
            return None
        for resource in (head.group, topic):
            if not self.shared.authorizer.authorize(
                connection.principal, connection.host, Operation.READ, resource
            ):
                return None
        return found.name, found.topic_id
