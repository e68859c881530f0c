"""What a shard of groups does by itself, when time has passed."""

from __future__ import annotations

from tests.unit.coordinators.groups.helpers import START_WALL_MS, TOPIC_ID, SeededRandom
from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.settings import GroupSettings
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.groups.stats import GroupStats
from tidelog.coordinators.groups.timers import TimerKind
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now


def apply(shard: GroupShard, outcome: Outcome) -> None:
    for record in outcome.records:
        shard.replay(record)
    if outcome.then is not None:
        outcome.then()


def test_every_kind_of_timer_has_something_to_do() -> None:
    assert GroupShard(GroupSettings(), SeededRandom(1))._on_timer.keys() == set(TimerKind)


def test_offsets_expire_by_a_timer_and_are_counted() -> None:
    settings, stats, ages = GroupSettings(), GroupStats(), [0]
    shard = GroupShard(settings, SeededRandom(1), MetadataImage, stats, lambda: lambda _: ages[-1])
    now = Now(1_000, START_WALL_MS)
    apply(shard, next(shard.loaded(now)))
    commits = [Commit("t", TOPIC_ID, 0, 5, -1, "")]
    apply(shard, shard.commit("g", Committer("", None, -1), commits, now))
    assert stats.commits == 1
    retention_ms = settings.offsets_retention_ms
    for age_ms, left in ((retention_ms - 1, 1), (retention_ms, 0)):
        ages.append(age_ms)
        now = Now(now.ms + settings.offsets_expiry_interval_ms, now.wall_ms)
        for outcome in shard.due(now):
            apply(shard, outcome)
        assert len(shard.offsets) == len(shard.table) == left
    assert stats.expired_offsets == 1
