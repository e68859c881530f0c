"""What a case is: a function that one client goes through, registered under its own name."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.compat.clients import Client
from tests.compat.driver import ClientError, Driver
from tests.compat.members import Member
from tests.compat.transactions import TransactionalProducer
from tests.compat.wire import Wire
from tests.compat.wire_groups import GroupWire
from tests.compat.wire_transactions import TransactionWire

# Kafka's error codes that the cases expect.
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC_EXCEPTION = 17
INVALID_TIMESTAMP = 32
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
UNKNOWN_MEMBER_ID = 25
INVALID_CONFIG = 40
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
FENCED_INSTANCE_ID = 82
GROUP_SUBSCRIBED_TO_TOPIC = 86
INVALID_RECORD = 87
PRODUCER_FENCED = 90


@dataclass
class Trial:
    """One client at one broker: what a case is given."""

    client: Client
    driver: Driver
    wire: Wire
    topics: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    producers: list[TransactionalProducer] = field(default_factory=list)

    def _unused_name(self) -> str:
        return f"compat-{self.client.name}-{os.getpid()}-{next(_numbers)}"

    def unused_name(self) -> str:
        """A topic name that nobody has; what the case makes of it is deleted in the end."""
        name = self._unused_name()
        self.topics.append(name)
        return name

    def unused_group(self) -> str:
        """A group that nobody has; it is deleted in the end."""
        name = self._unused_name()
        self.groups.append(name)
        return name

    @property
    def group_wire(self) -> GroupWire:
        return GroupWire(self.wire)

    def join(
        self, group: str, topics: Sequence[str] = (), pattern: str | None = None, **settings: object
    ) -> Member:
        """A member that subscribes now and joins while it is polled; it is closed in the end."""
        member = Member(self.driver, f"member-{next(_numbers)}", group)
        self.members.append(member)
        settings.setdefault("auto_commit", not self.commits)
        return member.join(topics, pattern, **settings)

    @property
    def transaction_wire(self) -> TransactionWire:
        return TransactionWire(self.wire)

    def transactional_id(self) -> str:
        """One that nobody has."""
        return self._unused_name()

    def producer(self) -> TransactionalProducer:
        """A producer that is yet to be opened; it is closed in the end."""
        made = TransactionalProducer(self.driver, f"producer-{next(_numbers)}")
        self.producers.append(made)
        return made

    def clean_up(self) -> None:
        for producer in self.producers:
            producer.close()
        for member in self.members:
            member.close()
        if self.groups:
            self.group_wire.delete(self.groups)
        if self.topics:
            self.wire.delete_topics(self.topics)

    def topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A fresh topic, made without the client."""
        name = self.unused_name()
        self.wire.create_topic(name, partitions, configs)
        return name

    def can(self, case_name: str) -> bool:
        return case_name not in self.client.lacks

    @property
    def consumes(self) -> bool:
        return self.can("consume_start")

    @property
    def commits(self) -> bool:
        """Whether it can be told when to commit; else it is left to do it by itself."""
        return self.can("group_commit_metadata")


@dataclass(frozen=True)
class Case:
    name: str
    section: str
    told: str
    run: Callable[[Trial], None]


CASES: dict[str, Case] = {}
_numbers = itertools.count(1)


def case(section: str, told: str) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Register a function as a case; `told` is its line in the documentation."""

    def register(function: Callable[[Trial], None]) -> Callable[[Trial], None]:
        name = function.__name__
        assert name not in CASES, f"two cases are named {name}"
        CASES[name] = Case(name, section, told, function)
        return function

    return register


@contextmanager
def refused(code: int, kinds: Collection[str] = ()) -> Iterator[None]:
    """The client must report the broker's `code`, or by itself an error of one of `kinds`."""
    with refused_with((code,), kinds):
        yield


@contextmanager
def refused_with(codes: Collection[int], kinds: Collection[str] = ()) -> Iterator[None]:
    """`refused` where the versions of a request have different codes for the same."""
    try:
        yield
    except ClientError as error:
        _check(error, codes, kinds)
    else:
        raise AssertionError(f"accepted, but an error of {codes} was expected")


def check_refused(error: ClientError | None, code: int, kinds: Collection[str] = ()) -> None:
    assert error is not None, f"accepted, but error code {code} was expected"
    _check(error, (code,), kinds)


def _check(error: ClientError, codes: Collection[int], kinds: Collection[str]) -> None:
    assert error.code in codes or error.kind in kinds, f"{error}; expected {codes} or {kinds}"
