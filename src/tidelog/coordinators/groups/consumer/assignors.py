"""Who is to own what: the assignors that a broker runs for consumer groups (KIP-848).

Pure functions: the same group gives the same target, whatever the order in which it is told of its
members. `uniform` spreads partitions evenly over all topics and moves as few as it can from where
the last target had them; `range` gives each member neighbouring partitions of each topic and
remembers nothing. Partitions of a topic that no member is subscribed to belong to nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

# Partitions by topic. What was handed out is never changed in place.
Partitions = Mapping[UUID, frozenset[int]]


class AssignableMember(NamedTuple):
    """A member as an assignor sees it; `previous` is its part of the last target."""

    instance_id: str | None
    topics: frozenset[UUID]
    previous: Partitions


Assignor = Callable[[Mapping[str, AssignableMember], Mapping[UUID, int]], dict[str, Partitions]]
_Shares = dict[str, dict[UUID, list[int]]]


def assign_range(
    members: Mapping[str, AssignableMember], partitions: Mapping[UUID, int]
) -> dict[str, Partitions]:
    """Each topic in ranges, over the members that are subscribed to it.

    Members keep their order for all topics, so that equally numbered partitions of topics of one
    size meet at one member; static members stay in place through restarts, by their instance id.
    """
    order = sorted(
        members, key=lambda each: (members[each].instance_id is None, _name(each, members))
    )
    shares: _Shares = {each: {} for each in members}
    for topic in _by_id(partitions):
        subscribers = [each for each in order if topic in members[each].topics]
        if not subscribers:
            continue
        size, longer = divmod(partitions[topic], len(subscribers))
        first = 0
        for index, member_id in enumerate(subscribers):
            end = first + size + (index < longer)
            if end > first:
                shares[member_id][topic] = list(range(first, end))
            first = end
    return _frozen(shares)


def _name(member_id: str, members: Mapping[str, AssignableMember]) -> str:
    return members[member_id].instance_id or member_id


def assign_uniform(
    members: Mapping[str, AssignableMember], partitions: Mapping[UUID, int]
) -> dict[str, Partitions]:
    """The same number for everybody, or one more, as far as subscriptions allow; sticky."""
    uniform = _Uniform(members, partitions)
    if len({each.topics for each in members.values()}) <= 1:
        uniform.share_equally()
    else:
        uniform.share_by_subscription()
    return _frozen(uniform.shares)


class _Uniform:
    """One computation: shares that start from the last target, and what nobody has yet."""

    def __init__(
        self, members: Mapping[str, AssignableMember], partitions: Mapping[UUID, int]
    ) -> None:
        self.order = sorted(members)
        self.subscribers = {
            topic: [each for each in self.order if topic in members[each].topics]
            for topic in _by_id(partitions)
        }
        self.shares: _Shares = {each: {} for each in self.order}
        self.loads = dict.fromkeys(self.order, 0)
        taken: dict[UUID, set[int]] = {topic: set() for topic in partitions}
        for member_id in self.order:
            member = members[member_id]
            for topic in _by_id(member.previous):
                if topic not in member.topics or topic not in partitions:
                    continue
                kept = {each for each in member.previous[topic] if each < partitions[topic]}
                kept -= taken[topic]
                taken[topic] |= kept
                if kept:
                    self.shares[member_id][topic] = sorted(kept)
                    self.loads[member_id] += len(kept)
        self.unassigned = [
            (topic, index)
            for topic, subscribers in self.subscribers.items()
            if subscribers
            for index in range(partitions[topic])
            if index not in taken[topic]
        ]

    def give(self, member_id: str, topic: UUID, index: int) -> None:
        self.shares[member_id].setdefault(topic, []).append(index)
        self.loads[member_id] += 1

    def take(self, member_id: str, topic: UUID) -> int:
        """Take away what came last: it is the least likely to be in use already."""
        held = self.shares[member_id][topic]
        index = held.pop()
        if not held:
            del self.shares[member_id][topic]
        self.loads[member_id] -= 1
        return index

    # Everybody is subscribed to the same topics

    def share_equally(self) -> None:
        if not self.order:
            return
        total = sum(self.loads.values()) + len(self.unassigned)
        quota, larger = divmod(total, len(self.order))
        # Those who have most keep the one more, so that as little as possible moves.
        ranked = sorted(self.order, key=lambda each: -self.loads[each])
        quotas = {each: quota + (rank < larger) for rank, each in enumerate(ranked)}
        free = self.unassigned
        for member_id in self.order:
            for topic in self._surplus(member_id, self.loads[member_id] - quotas[member_id]):
                free.append((topic, self.take(member_id, topic)))
        # In turn, so that everybody gets something of each topic.
        waiting = deque(each for each in self.order if self.loads[each] < quotas[each])
        for topic, index in free:
            member_id = waiting.popleft()
            self.give(member_id, topic, index)
            if self.loads[member_id] < quotas[member_id]:
                waiting.append(member_id)

    def _surplus(self, member_id: str, count: int) -> list[UUID]:
        """Of which topics a member is to lose how many: of those first that it has most of."""
        if count <= 0:
            return []
        ranks = [
            (rank, topic.int, topic)
            for topic, held in self.shares[member_id].items()
            for rank in range(len(held))
        ]
        return [topic for _, _, topic in sorted(ranks)[-count:]]

    # Subscriptions differ

    def share_by_subscription(self) -> None:
        # Topics that few want first: later ones can make up for what these leave uneven.
        for topic, index in sorted(
            self.unassigned, key=lambda each: (len(self.subscribers[each[0]]), each[0].int, each[1])
        ):
            least = min(self.subscribers[topic], key=self.loads.__getitem__)
            self.give(least, topic, index)
        while self._balance_once():
            pass

    def _balance_once(self) -> bool:
        """Move partitions from who has two more than another subscriber; False when none does.

        Each move lowers the sum of the squared loads, so this ends.
        """
        moved = False
        for topic, subscribers in self.subscribers.items():
            while True:
                holders = [each for each in subscribers if topic in self.shares[each]]
                if not holders:
                    break
                most = max(holders, key=self.loads.__getitem__)
                least = min(subscribers, key=self.loads.__getitem__)
                if self.loads[most] - self.loads[least] < 2:
                    break
                self.give(least, topic, self.take(most, topic))
                moved = True
        return moved


def _by_id(topics: Mapping[UUID, object]) -> list[UUID]:
    return sorted(topics, key=lambda each: each.int)


def _frozen(shares: _Shares) -> dict[str, Partitions]:
    return {
        member_id: {topic: frozenset(indexes) for topic, indexes in topics.items()}
        for member_id, topics in shares.items()
    }


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
