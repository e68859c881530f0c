"""What rules cost: one load by turns on brokers that differ in their authorizer alone.

Or on one broker that goes by rules and without; see `bench.peers.swapping`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import statistics
import time
from operator import truediv

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bench.loads.logins import plain
from bench.loads.raw import drive
from bench.measure import Stopwatch, cpu_ns
from bench.peers.secured import USER
from bench.wire import Connection, produce_error, produce_frame, record_batch

_TOPIC_AUTHORIZATION_FAILED = 29
# What a broker is sent, and what it then answers to one who writes where no rule allows it.
_SIGNALS = {
    "open": (signal.SIGUSR1, 0),
    "ruled": (signal.SIGUSR2, _TOPIC_AUTHORIZATION_FAILED),
}
_FIELDS = ("elapsed_s", "cpu_user_s", "cpu_system_s", "requests")


def allow_writing(bootstrap_servers: str, topic: str) -> None:
    """The one rule that lets the user produce."""
    rule = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{USER}",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for done in admin.create_acls([rule]).values():
        done.result(30)


class _Side:
    """All connections to one broker, logged in and answered once."""

    def __init__(self, port: int, pid: int, topic: str, connections: int) -> None:
        self._pid = pid
        self._request = produce_frame(topic, record_batch([b"x" * 100]), acks=1)
        self._selector = selectors.DefaultSelector()
        self._opened = []
        for _ in range(connections):
            connection = Connection(port)
            plain(connection)
            answer = connection.ask(self._request)
            assert produce_error(answer, topic) == 0, produce_error(answer, topic)
            self._selector.register(connection.socket, selectors.EVENT_READ)
            self._opened.append(connection)
        self._answer_bytes = 4 + len(answer)
        self.total = dict.fromkeys(_FIELDS, 0.0)
        # What a request took in each turn.
        self.costs: list[float] = []

    def run(self, duration_s: float) -> None:
        stopwatch, sockets = Stopwatch(self._pid), [each.socket for each in self._opened]
        before = cpu_ns(self._pid)
        count = drive(self._selector, sockets, self._request, self._answer_bytes, duration_s)
        self.costs.append((cpu_ns(self._pid) - before) / count)
        for name, value in stopwatch.result(requests=count).items():
            self.total[name] += value

    @property
    def cpu_s_each(self) -> float:
        total = self.total
        return (total["cpu_user_s"] + total["cpu_system_s"]) / total["requests"]

    def close(self) -> None:
        self._selector.close()
        for each in self._opened:
            each.close()


class _Swap:
    """Has one broker go with rules or without, and sees that it does."""

    def __init__(self, port: int, pid: int, topic: str) -> None:
        self._pid, self._topic = pid, topic
        self._connection = Connection(port)
        plain(self._connection)
        self._request = produce_frame(topic, record_batch([b"x"]), acks=1)

    def to(self, name: str) -> None:
        number, wanted = _SIGNALS[name]
        os.kill(self._pid, number)
        deadline = time.monotonic() + 10
        while produce_error(self._connection.ask(self._request), self._topic) != wanted:
            assert time.monotonic() < deadline, f"the broker does not go {name}"
            time.sleep(0.001)

    def close(self) -> None:
        self._connection.close()


def by_turns(
    sides: dict[str, dict[str, int]],
    topic: str,
    connections: int,
    duration_s: float,
    turns: int,
    forbidden: str | None = None,
) -> dict[str, float]:
    """Small produce requests to the broker without rules and to that with them, in short turns.

    Which of the two begins changes from turn to turn, so that neither gets the better moments.
    The percentage is the median of all turns: on a busy machine some cost several times the usual.
    `forbidden` names a topic that no rule allows, where both are one broker.
    """
    with contextlib.ExitStack() as closing:
        opened = [
            closing.enter_context(
                contextlib.closing(_Side(**sides[name], topic=topic, connections=connections))
            )
            for name in ("open", "ruled")
        ]
        swap = None
        if forbidden is not None:
            swap = closing.enter_context(
                contextlib.closing(_Swap(**sides["ruled"], topic=forbidden))
            )
        order = list(zip(("open", "ruled"), opened, strict=True))
        for _ in range(turns):
            order.reverse()
            for name, side in order:
                if swap is not None:
                    swap.to(name)
                side.run(duration_s / turns)
        without, ruled = opened
        return {
            **ruled.total,
            "open_requests_per_cpu_s": 1 / without.cpu_s_each,
            "acl_percent": statistics.median(map(truediv, ruled.costs, without.costs)) * 100 - 100,
        }
