"""What rules cost: one load on two brokers by turns, which differ in their authorizer alone."""

from __future__ import annotations

import contextlib
import selectors

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
from bench.measure import Stopwatch
from bench.peers.secured import USER
from bench.wire import Connection, produce_error, produce_frame, record_batch

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

    def run(self, duration_s: float) -> None:
        stopwatch, sockets = Stopwatch(self._pid), [each.socket for each in self._opened]
        count = drive(self._selector, sockets, self._request, self._answer_bytes, duration_s)
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


def by_turns(
    sides: dict[str, dict[str, int]], topic: str, connections: int, duration_s: float, turns: int
) -> dict[str, float]:
    """Small produce requests to the broker without rules and to that with them, in short turns.

    Which of the two begins changes from turn to turn, so that neither gets the better moments.
    """
    with contextlib.ExitStack() as closing:
        opened = [
            closing.enter_context(
                contextlib.closing(_Side(**sides[name], topic=topic, connections=connections))
            )
            for name in ("open", "ruled")
        ]
        for turn in range(turns):
            for side in opened if turn % 2 else reversed(opened):
                side.run(duration_s / turns)
        without, ruled = opened
        return {
            **ruled.total,
            "open_requests_per_cpu_s": 1 / without.cpu_s_each,
            "acl_percent": (ruled.cpu_s_each / without.cpu_s_each - 1) * 100,
        }
