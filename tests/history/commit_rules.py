"""The rules about owners and committed offsets (K13, K6 across takeovers, I23).

The committed offset of a partition is a register: a commit takes effect at one moment between its
start and its end, and whoever asks gets the last one. A commit whose outcome is not known (its
member was killed, the broker went away) may have taken effect or not, but not after a later
generation gave the partition to somebody else, for then its member is fenced. Somebody who is given
a partition asks before it polls: its first record tells what it was told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from tests.history.events import (
    BROKER,
    Assigned,
    CommitEnded,
    CommitStarted,
    CommittedByItself,
    CommittedRead,
    Event,
    Fault,
    Joined,
    Polled,
)
from tests.history.log_rules import Contents
from tests.history.poll_rules import Run
from tests.history.report import Rule, Violation

NEVER_NS = 1 << 63


class Outcome(Enum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Commit:
    partition: str
    offset: int
    member: str
    generation: int | None
    outcome: Outcome
    start_ns: int
    end_ns: int
    events: tuple[Event, ...]


class Members:
    """Who the members are and when each was given what."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.joined: dict[str, Joined] = {}
        self.assignments: list[Assigned] = []
        self._fences: dict[tuple[str, int, str | None], Assigned | None] = {}
        for event in events:
            if isinstance(event, Joined):
                self.joined[event.member] = event
            elif isinstance(event, Assigned) and event.generation is not None:
                self.assignments.append(event)

    def owner(self, member: str) -> str:
        """A static member that returns is the same owner."""
        joined = self.joined.get(member)
        return member if joined is None or joined.instance is None else joined.instance

    def is_classic(self, member: str) -> bool:
        joined = self.joined.get(member)
        return joined is None or joined.classic

    def _replaces(self, member: str, other: str) -> bool:
        """Whether it is a later incarnation of the same static member."""
        new, old = self.joined.get(member), self.joined.get(other)
        if new is None or old is None or new.instance is None:
            return False
        return new.instance == old.instance and new.time_ns > old.time_ns

    def fence(self, commit: Commit) -> Assigned | None:
        """The first assignment after which no commit of this member and generation is right.

        In the classic protocol any assignment of a later generation; with member epochs only one
        of the partition; and always one to a later incarnation of the same static member.
        """
        if commit.generation is None:
            return None
        partition = None if self.is_classic(commit.member) else commit.partition
        key = (commit.member, commit.generation, partition)
        if key not in self._fences:
            self._fences[key] = self._first_fence(*key)
        return self._fences[key]

    def _first_fence(self, member: str, generation: int, partition: str | None) -> Assigned | None:
        for assigned in self.assignments:
            if assigned.member == member or assigned.generation is None:
                continue
            concerns = partition is None or partition in assigned.partitions
            if concerns and assigned.generation > generation:
                return assigned
            if assigned.generation == generation and self._replaces(assigned.member, member):
                return assigned
        return None


class Repeats:
    """When clients may have repeated a commit because they did not hear the answer.

    The first try may have been accepted then, though the second is refused. One broker does not
    answer when it is killed. Of several, any may lose its place to another at any time.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        faults = [each for each in events if isinstance(each, Fault)]
        self._times = [each.time_ns for each in faults if each.target == BROKER]
        self._always = any(each.target.startswith(f"{BROKER} ") for each in faults)

    def possible(self, start_ns: int, end_ns: int) -> bool:
        return self._always or any(start_ns <= each <= end_ns for each in self._times)


def find_commits(events: Iterable[Event], members: Members) -> list[Commit]:
    events = list(events)
    repeats = Repeats(events)
    started: dict[tuple[str, int], CommitStarted] = {}
    commits: list[Commit] = []
    for event in events:
        if isinstance(event, CommitStarted):
            started[event.member, event.number] = event
        elif isinstance(event, CommitEnded):
            start = started.pop((event.member, event.number))
            commits += _ended(start, event, repeats)
    for start in started.values():
        commits += _commits(start, Outcome.UNKNOWN, NEVER_NS, (start,))
    commits += _by_themselves(events, members)
    for commit in commits:
        if commit.outcome is Outcome.UNKNOWN and (fence := members.fence(commit)) is not None:
            commit.end_ns = max(commit.start_ns, fence.time_ns)
    return sorted(commits, key=lambda commit: commit.start_ns)


def _commits(
    start: CommitStarted,
    outcome: Outcome,
    end_ns: int,
    events: tuple[CommitStarted | CommitEnded, ...],
) -> Iterator[Commit]:
    # The client may join anew between our asking and its sending: the later generation counts.
    known = [each.generation for each in events if each.generation is not None]
    generation = max(known, default=None)
    for partition, offset in start.positions:
        assert offset is not None
        yield Commit(
            partition, offset, start.member, generation, outcome, start.time_ns, end_ns, events
        )


def _ended(start: CommitStarted, end: CommitEnded, repeats: Repeats) -> Iterator[Commit]:
    if end.error is None:
        return _commits(start, Outcome.ACCEPTED, end.time_ns, (start, end))
    if end.refused and not repeats.possible(start.time_ns, end.time_ns):
        return _commits(start, Outcome.REFUSED, end.time_ns, (start, end))
    return _commits(start, Outcome.UNKNOWN, NEVER_NS, (start, end))


def _by_themselves(events: Iterable[Event], members: Members) -> Iterator[Commit]:
    """Auto-commit: what was polled may be committed from then on, and what was told of, is."""
    polled: dict[tuple[str, str, int], Commit] = {}
    for event in events:
        if isinstance(event, Polled):
            joined = members.joined.get(event.member)
            if joined is None or not joined.commits_by_itself:
                continue
            for record in event.records:
                polled[event.member, record.partition, record.offset + 1] = Commit(
                    record.partition, record.offset + 1, event.member, event.generation,
                    Outcome.UNKNOWN, event.time_ns, NEVER_NS, (event,),
                )  # fmt: skip
        elif isinstance(event, CommittedByItself):
            for partition, offset in event.positions:
                assert offset is not None
                possible = polled.get((event.member, partition, offset))
                if possible is not None and possible.outcome is Outcome.UNKNOWN:
                    possible.outcome = Outcome.ACCEPTED
                    possible.end_ns = event.time_ns
                    possible.events += (event,)
    yield from polled.values()


def two_owners(events: Iterable[Event], members: Members) -> Iterator[Violation]:
    """I23: whoever was given or polled a partition in a generation is its one owner then."""
    owners: dict[tuple[str, int], tuple[str, Event]] = {}
    told: set[tuple[str, int]] = set()
    for event in events:
        if isinstance(event, Assigned):
            partitions = set(event.partitions)
        elif isinstance(event, Polled):
            partitions = {record.partition for record in event.records}
        else:
            continue
        if event.generation is None:
            continue
        owner = members.owner(event.member)
        for partition in partitions:
            key = (partition, event.generation)
            other, first = owners.setdefault(key, (owner, event))
            if other != owner and key not in told:
                told.add(key)
                what = f"{partition} belongs to {other} and {owner} in {event.generation}"
                yield Violation(Rule.TWO_OWNERS, what, (first, event))


def fenced_commits(commits: Iterable[Commit], members: Members) -> Iterator[Violation]:
    """K13: a commit that began after its member was fenced, and was accepted."""
    for commit in commits:
        if commit.outcome is not Outcome.ACCEPTED:
            continue
        fence = members.fence(commit)
        if fence is not None and fence.time_ns < commit.start_ns:
            what = (
                f"{commit.member} of {commit.generation} committed {commit.partition}"
                f"@{commit.offset} after {fence.member} was assigned in {fence.generation}"
            )
            yield Violation(Rule.FENCED_COMMIT, what, (fence, *commit.events))


def falling_commits(commits: Iterable[Commit], members: Members) -> Iterator[Violation]:
    """K13: an accepted commit that began after a higher one was accepted.

    A fenced one has broken another rule already.
    """
    accepted: dict[str, list[Commit]] = defaultdict(list)
    for commit in commits:
        if commit.outcome is Outcome.ACCEPTED:
            accepted[commit.partition].append(commit)
    for partition, each in accepted.items():
        by_end = sorted(each, key=lambda commit: commit.end_ns)
        highest: Commit | None = None
        ended = 0
        for commit in each:  # in the order of their starts
            while by_end[ended].end_ns < commit.start_ns:
                if highest is None or by_end[ended].offset > highest.offset:
                    highest = by_end[ended]
                ended += 1
            if highest is None or commit.offset >= highest.offset:
                continue
            fence = members.fence(commit)
            if fence is None or fence.time_ns >= commit.start_ns:
                what = f"{partition}: {commit.offset} was committed after {highest.offset}"
                yield Violation(Rule.COMMIT_REGRESS, what, highest.events + commit.events)


@dataclass(slots=True)
class Question:
    """Somebody asked for a committed offset between two times, and this is what it was told."""

    partition: str
    start_ns: int
    end_ns: int
    event: Event
    answer: int | None
    run: Run | None = None


def find_questions(events: Iterable[Event], runs: Iterable[Run]) -> list[Question]:
    asked = [
        Question(
            run.partition, run.assigned.time_ns, run.first_poll_ns, run.polls[0][1],
            run.first_offset, run,
        )
        for run in runs
    ]  # fmt: skip
    for event in events:
        if isinstance(event, CommittedRead):
            asked += [
                Question(partition, event.started_ns, event.time_ns, event, offset)
                for partition, offset in event.positions
            ]
    return sorted(asked, key=lambda question: question.end_ns)


def wrong_answers(
    questions: Iterable[Question], commits: Iterable[Commit], contents: Contents
) -> Iterator[Violation]:
    """K13 where the committed offset fell or was forgotten, K6 where a run begins too far on."""
    by_partition: dict[str, list[Commit]] = defaultdict(list)
    for commit in commits:
        if commit.outcome is not Outcome.REFUSED:
            by_partition[commit.partition].append(commit)
    seen = {partition: sorted(offsets) for partition, offsets in contents.seen.items()}
    for question in questions:
        yield from _wrong_answer(
            question, by_partition[question.partition], seen.get(question.partition, [])
        )


def _wrong_answer(
    question: Question, commits: list[Commit], seen: list[int]
) -> Iterator[Violation]:
    known = [
        each
        for each in commits
        if each.outcome is Outcome.ACCEPTED and each.end_ns < question.start_ns
    ]
    newest_ns = max((each.start_ns for each in known), default=-1)
    possible = [
        each for each in commits if each.start_ns <= question.end_ns and each.end_ns >= newest_ns
    ]

    def gives(offset: int | None) -> int | None:
        """What is told where `offset` is committed: for a run, its first record."""
        if question.run is None:
            return offset
        index = bisect_left(seen, offset or 0)
        return seen[index] if index < len(seen) else None

    explained = [each for each in possible if gives(each.offset) == question.answer]
    if explained:
        if all(each.outcome is Outcome.UNKNOWN for each in explained):
            # It was shown to somebody, so it may not be taken back from here on.
            explained[-1].outcome = Outcome.ACCEPTED
            explained[-1].end_ns = min(explained[-1].end_ns, question.end_ns)
        return
    if not known and question.answer == gives(None):
        return
    highest = max(known, key=lambda each: each.offset, default=None)
    proof = (*(highest.events if highest is not None else ()), question.event)
    asker = f"{question.run.member} begins" if question.run is not None else "it reads"
    what = (
        f"{question.partition}: {asker} at {question.answer}, where"
        f" {sorted({each.offset for each in possible}) or 'nothing'} was committed"
    )
    floor = -1 if highest is None else highest.offset
    answer = -1 if question.answer is None else question.answer
    skips = question.run is not None and answer > floor
    yield Violation(Rule.POLL_SKIP if skips else Rule.COMMIT_REGRESS, what, proof)
