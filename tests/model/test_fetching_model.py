"""Whatever two replicas have been through, a follower comes to equal its leader."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.replication.fetch_fakes import FakePartition, Stage, new_log, play
from tests.unit.storage.helpers import append, batch
from tidelog.storage.log import Log


@dataclass
class Replica:
    """A log as a list: the epoch and the fill of each batch."""

    batches: list[tuple[int, int]] = field(default_factory=list)

    def shared_with(self, other: Replica) -> int:
        """How many batches the two begin with in common."""
        count = 0
        for mine, theirs in zip(self.batches, other.batches, strict=False):
            if mine != theirs:
                break
            count += 1
        return count

    def copy_from(self, leader: Replica, count: int) -> None:
        shared = self.shared_with(leader)
        self.batches = leader.batches[: min(shared + count, len(leader.batches))]

    def log(self) -> Log:
        log = new_log()
        for epoch, fill in self.batches:
            append(log, batch(2, fill=fill), epoch=epoch)
        return log


# In each epoch one of two replicas leads, whatever it holds; it writes so many batches, of which
# the other one copies some, or does not hear at all (None).
reigns = st.tuples(st.integers(0, 1), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 6)))
histories = st.lists(reigns, min_size=1, max_size=8)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories, st.integers(0, 30), st.integers(0, 1))
def test_a_follower_comes_to_equal_its_leader(
    history: list[tuple[int, int, int | None]], watermark: int, last: int
) -> None:
    replicas = Replica(), Replica()
    fill = 0
    for epoch, (leading, writes, copies) in enumerate(history):
        leader, other = replicas[leading], replicas[1 - leading]
        for _ in range(writes):
            fill += 1
            leader.batches.append((epoch, fill))
        if copies is not None:
            other.copy_from(leader, copies)
    leader, other = replicas[last], replicas[1 - last]
    shared_end = 2 * leader.shared_with(other)
    other_end = 2 * len(other.batches)

    async def catch_up(stage: Stage) -> None:
        follower = FakePartition(log=other.log())
        follower.high_watermark = known = min(watermark, other_end)
        follower.leader_epoch = len(history)
        stage.leader.lead(leader.log(), epoch=len(history))
        stage.fetchers.follow(follower, 1)
        await stage.until_equal(follower)
        lowest = min([*follower.cuts, other_end])
        # Nothing that both have is cut, and nothing that was known as committed without a word.
        assert lowest >= shared_end
        assert bool(follower.alarms) == (lowest < known)

    play(catch_up)
