"""A consumer of the classic protocol that means what it says: it assigns, owns and gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.unit.coordinators.groups.helpers import REBALANCE_MS, SESSION_MS, World, result
from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.settings import Caller
from tidelog.coordinators.outcome import Reply
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

# Who has to start anew, under another id.
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


@dataclass(slots=True, eq=False)
class ClassicConsumer:
    """One member of a group that consumes topic `t`.

    An eager one drops all it owns before it joins again. A cooperative one keeps it, and joins once
    more without what the assignment took away.
    """

    world: World
    instance_id: str | None = None
    is_cooperative: bool = False
    group: str = "g"
    rebalance_timeout_ms: int = REBALANCE_MS
    member_id: str = ""
    generation: int = -1
    owned: frozenset[int] = frozenset()
    waiting: Reply[Any] | None = None
    # Where it leads: who is in the group, and what they own.
    leads: dict[str, set[int]] = field(default_factory=dict)
    # What it does next: "join", "sync" or "beat".
    next: str = "join"

    def step(self) -> bool:
        """Do the next thing, or see whether what it waits for is there. True where it moved."""
        try:
            return self._step()
        except KafkaError as error:
            self.waiting = None
            if error.code in LOST:
                self.lose()
            elif error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.next = "join"
                return True
            raise

    def lose(self) -> None:
        self.owned, self.generation, self.next = frozenset(), -1, "join"
        self.member_id = ""

    def _step(self) -> bool:
        if self.waiting is not None:
            if not self.waiting.is_done:
                return False
            waiting, self.waiting = self.waiting, None
            return self._take(result(waiting))
        if self.next == "beat":
            return self._beat()
        return self._take(self._join() if self.next == "join" else self._sync())

    def _take(self, answer: Any) -> bool:
        if isinstance(answer, Reply):
            self.waiting = answer
            return True
        if isinstance(answer, JoinGroupResponse):
            self.member_id = answer.member_id
            if answer.error_code:
                assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
                return True
            self.generation, self.next = answer.generation_id, "sync"
            self.leads = {
                each.member_id: set(decode_subscription(each.metadata).owned.get("t", []))
                for each in answer.members
            }
            return True
        assert isinstance(answer, SyncGroupResponse)
        assigned = frozenset(decode_assignment(answer.assignment).get("t", []))
        lost = self.owned - assigned
        self.owned = assigned
        self.next = "join" if lost and self.is_cooperative else "beat"
        return True

    def _join(self) -> Any:
        if not self.is_cooperative:
            self.owned = frozenset()
        caller = Caller("client", "/127.0.0.1")
        name = "cooperative-sticky" if self.is_cooperative else "range"
        request = JoinGroupRequest(
            self.group, SESSION_MS, self.rebalance_timeout_ms, self.member_id, self.instance_id,
            "consumer",
            [
                JoinGroupRequestProtocol(each, subscription(self.owned))
                for each in dict.fromkeys((name, "range"))
            ],
        )  # fmt: skip
        return self.world.run(lambda shard, now: shard.join(request, 9, caller, now))

    def _sync(self) -> Any:
        given = [
            SyncGroupRequestAssignment(each, encode_assignment({"t": self._share(index, each)}))
            for index, each in enumerate(sorted(self.leads))
        ]
        request = SyncGroupRequest(
            self.group, self.generation, self.member_id, self.instance_id, "consumer", None, given
        )
        return self.world.run(lambda shard, now: shard.sync(request, now))

    def _share(self, index: int, member_id: str) -> list[int]:
        """In turn; a cooperative assignor leaves out what another member has yet to give back."""
        count = len(self.world.image.topics["t"].partitions)
        share = list(range(count))[index :: len(self.leads)]
        if not self.is_cooperative:
            return share
        held = {partition: owner for owner, owned in self.leads.items() for partition in owned}
        return [each for each in share if held.get(each, member_id) == member_id]

    def _beat(self) -> bool:
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance_id)
        code = self.world.run(lambda shard, now: shard.heartbeat(request, now)).error_code
        if code:
            raise KafkaError(ErrorCode(code))
        return False

    def leave(self) -> None:
        identity = MemberIdentity(self.member_id, self.instance_id)
        request = LeaveGroupRequest(self.group, members=[identity])
        self.world.run(lambda shard, now: shard.leave(request, 5, now))
        self.lose()

    def commit(self, partition: int, offset: int) -> ErrorCode:
        topic = self.world.image.topics["t"]
        by = Committer(self.member_id, self.instance_id, self.generation, 8)
        commits = [Commit("t", topic.topic_id, partition, offset, -1, "")]
        codes: list[ErrorCode] = self.world.run(
            lambda shard, now: shard.commit(self.group, by, commits, now)
        )
        return codes[0]


def subscription(owned: frozenset[int]) -> bytes:
    head = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
    if not owned:
        return head + bytes(4)
    partitions = b"".join(each.to_bytes(4) for each in sorted(owned))
    return head + b"\0\0\0\1" + b"\0\1t" + len(owned).to_bytes(4) + partitions
