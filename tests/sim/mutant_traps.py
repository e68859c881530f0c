"""Further rules that a simulated world notices the absence of: each mutant patches the product."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

from tests.sim.mutant import Mutant, Patch
from tidelog.client.aio import Network
from tidelog.client.faults import NetworkError
from tidelog.cluster import elections, failover
from tidelog.cluster.controller import Controller
from tidelog.cluster.controller_link import ControllerLink
from tidelog.cluster.image import TopicImage
from tidelog.cluster.image_feed import ImageFeed
from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.following import Following
from tidelog.replication.leading import Leading
from tidelog.replication.partition import Partition
from tidelog.replication.waiters import CommitWait, CommitWaiters
from tidelog.server.context import RequestContext
from tidelog.storage.flush import FlushPlan
from tidelog.storage.loading import Loading
from tidelog.store.port import Check


def leading_commits_the_end() -> list[Patch]:
    begin = Leading.begin

    def commit(self: Leading, state: Any) -> None:
        self._watermark.raise_to(self._log.log_end_offset)
        begin(self, state)

    return [(Leading, "begin", commit)]


def no_look_at_losses() -> list[Patch]:
    return [(failover, "may_have_lost_records", lambda before, now: False)]


def consumers_and_followers_alike() -> list[Patch]:
    def check(self: Partition, offset: int) -> None:
        if not self.log.log_start_offset <= offset <= self.watermark.offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    return [(Partition, "check_offset", check)]


def followers_ask_before_they_have_synced() -> list[Patch]:
    reconfigure = Following.reconfigure

    def in_a_hurry(self: Following, config: Any) -> None:
        reconfigure(self, config)
        self.syncs = False

    return [(Following, "reconfigure", in_a_hurry)]


def live_replicas_delete() -> list[Patch]:
    """R22: whoever is away may lead again, with what was deleted."""

    def lowest(self: Leading) -> int:
        starts = [self._log.log_start_offset]
        if self.in_sync is not None:
            followers = self.in_sync.followers.items()
            starts += [each.log_start for id_, each in followers if id_ in self._standing.eligible]
        return min(starts)

    return [(Leading, "low_watermark", property(lowest))]


def starts_are_told_at_once() -> list[Patch]:
    """A leader tells clients where its log starts, whoever else has that."""

    def start(self: Leading) -> int:
        return self._log.log_start_offset

    return [(Leading, "start_to_tell", start)]


def directories_by_name() -> list[Patch]:
    """R23: what lies in a directory of the topic's name is taken for the topic's."""
    check = Loading._is_theirs

    def take(self: Loading, partition: Any, path: str, wanted: Any) -> bool:
        is_theirs = check(self, partition, path, wanted) if partition not in wanted else True
        if partition in wanted:
            self._topic_ids[partition] = wanted[partition].topic_id
        return is_theirs

    return [(Loading, "_is_theirs", take)]


def the_end_is_told_too_early() -> list[Patch]:
    return [(Partition, "latest_is_known", property(lambda self: True))]


def zombies_acknowledge() -> list[Patch]:
    """R17: a leader out of touch goes on with acks=1."""
    check = Leading.check_acks

    def any_acks(self: Leading, required_acks: int) -> KafkaError | None:
        return check(self, required_acks) if required_acks == -1 else None

    return [(Leading, "check_acks", any_acks)]


def refused_and_appended() -> list[Patch]:
    """What is refused for lack of replicas is in the log all the same."""
    append = Partition.append

    def append_first(self: Partition, admitted: Any, required_acks: int, *rest: Any) -> Any:
        refusal = self.leading.check_acks(required_acks)
        self.leading.check_acks = lambda required_acks: None  # type: ignore[method-assign]
        try:
            result = append(self, admitted, required_acks, *rest)
        finally:
            del self.leading.check_acks
        if refusal is not None:
            raise refusal
        return result

    return [(Partition, "append", append_first)]


def anyone_writes_metadata() -> list[Patch]:
    """C1: a transaction does not depend on who has the office."""
    write = Controller._write

    async def write_unchecked(self: Controller, operations: Any) -> int:
        multi = self._store.multi

        class Unfenced:
            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

            async def multi(self, operations: Any) -> int:
                return await multi([each for each in operations if not isinstance(each, Check)])

        store, self._store = self._store, Unfenced()  # type: ignore[assignment]
        try:
            return await write(self, operations)
        finally:
            self._store = store

    return [(Controller, "_write", write_unchecked)]


def nothing_is_synced() -> list[Patch]:
    def run(self: FlushPlan) -> None:
        """The disk will see to it."""

    return [(FlushPlan, "run", run)]


def eligible_leaders_are_not_elected() -> list[Patch]:
    elect = elections._elect

    def in_sync_only(state: Any, members: Any, elr: Any, last_known: Any, around: Any) -> Any:
        return elect(state, members, (), last_known if not elr else (), around)

    return [(elections, "_elect", in_sync_only)]


def waits_stay() -> list[Patch]:
    def keep(self: CommitWaiters, wait: CommitWait) -> None:
        """It goes when the watermark passes it."""

    return [(CommitWaiters, "remove", keep)]


def topics_by_name() -> list[Patch]:
    """R23: who asks by the id of a topic that is gone gets the one that has its name now."""
    look_up = RequestContext.topic_by_id
    names: dict[UUID, str] = {}

    def by_name(self: RequestContext, topic_id: UUID) -> TopicImage | None:
        found = look_up(self, topic_id)
        if found is not None:
            names[topic_id] = found.name
        return found or self.image.topics.get(names.get(topic_id, ""))

    return [(RequestContext, "topic_by_id", by_name)]


def a_broken_feed_stays_broken() -> list[Patch]:
    async def rest_for_ever(self: ImageFeed) -> None:
        await asyncio.get_running_loop().create_future()

    return [(ImageFeed, "_rest", rest_for_ever)]


def one_line_for_everything() -> list[Patch]:
    """A command waits behind the question for news, which waits for a change."""
    begin = ControllerLink.__init__

    def share(self: ControllerLink, *rest: Any) -> None:
        begin(self, *rest)
        self._commands = self._metadata

    return [(ControllerLink, "__init__", share)]


def calls_without_an_end() -> list[Patch]:
    """Our client waits for an answer as long as the connection seems to be there."""

    async def request(self: Network, call: Any) -> object:
        try:
            channel = await self._channel(call.node)
        except NetworkError as error:
            return error
        return await channel.send(call)

    return [(Network, "request", request)]


TRAPS: Final = (
    Mutant("leading commits the end", "trap 1", leading_commits_the_end, script="double failover"),
    Mutant("no look at losses", "trap 3", no_look_at_losses, script="last replica standing"),
    Mutant(
        "followers read as consumers",
        "trap 7",
        consumers_and_followers_alike,
        script="nothing at all",
    ),
    Mutant(
        "followers ask before they synced",
        "trap 8",
        followers_ask_before_they_have_synced,
        script="commit on synced disks",
    ),
    Mutant("live replicas delete", "R22", live_replicas_delete, script="deletion and failover"),
    Mutant(
        "starts are told at once",
        "I8",
        starts_are_told_at_once,
        script="deletion without followers",
    ),
    Mutant(
        "directories by name",
        "R23, topic ids compared",
        directories_by_name,
        script="topic made again",
    ),
    Mutant(
        "the end is told too early",
        "handlers/list_offsets",
        the_end_is_told_too_early,
        script="stale watermark",
    ),
    Mutant("zombies acknowledge", "R17, rule 6", zombies_acknowledge, script="zombie leader"),
    Mutant(
        "refused and appended", "definite errors", refused_and_appended, script="too few replicas"
    ),
    Mutant("anyone writes metadata", "C1, rule 2", anyone_writes_metadata, "store"),
    Mutant("nothing is synced", "rule 16, I31", nothing_is_synced, script="power cut after a sync"),
    Mutant(
        "eligible leaders never lead",
        "ELR order",
        eligible_leaders_are_not_elected,
        script="last replica standing",
    ),
    Mutant("topics by name", "handlers/fetch, R23", topics_by_name, script="read by an old id"),
    Mutant(
        "a broken feed stays broken",
        "cluster/follower, L8",
        a_broken_feed_stays_broken,
        script="feed cut short",
    ),
    Mutant(
        "one line for everything",
        "client/aio: peers",
        one_line_for_everything,
        script="command beside the feed",
        by_error=True,
    ),
    Mutant("calls without an end", "client/aio, L3", calls_without_an_end, "crashes"),
    Mutant(
        "waits stay", "replication/waiters", waits_stay, script="wait without an end", by_error=True
    ),
)
