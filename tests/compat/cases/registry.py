"""What a case is: a function that one client goes through, registered under its own name."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.compat.clients import Client
from tests.compat.driver import ClientError, Driver
from tests.compat.wire import Wire

# Kafka's error codes that the cases expect.
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC_EXCEPTION = 17
INVALID_TIMESTAMP = 32
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40
INVALID_RECORD = 87


@dataclass
class Trial:
    """One client at one broker: what a case is given."""

    client: Client
    driver: Driver
    wire: Wire
    topics: list[str] = field(default_factory=list)

    def unused_name(self) -> str:
        """A topic name that nobody has; what the case makes of it is deleted in the end."""
        name = f"compat-{self.client.name}-{os.getpid()}-{next(_numbers)}"
        self.topics.append(name)
        return name

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
    try:
        yield
    except ClientError as error:
        check_refused(error, code, kinds)
    else:
        raise AssertionError(f"accepted, but error code {code} was expected")


def check_refused(error: ClientError | None, code: int, kinds: Collection[str] = ()) -> None:
    assert error is not None, f"accepted, but error code {code} was expected"
    assert error.code == code or error.kind in kinds, f"{error}; expected code {code} or {kinds}"


def eventually(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for what a broker may do a moment after it has answered."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not so after {timeout_s} s"
        time.sleep(0.02)
