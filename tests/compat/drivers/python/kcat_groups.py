"""Groups with kcat: each member is a process with ``-G``, which tells its rebalances in words."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tests.compat.drivers.python.kcat_consumer import KcatConsumer, consumed, to_error
from tests.compat.drivers.python.loop import JsonObject

# % Group g rebalanced (memberid m): assigned: topic [0], topic [1]
# % Group g rebalanced: incremental revoke of 1 partition(s) (memberid m, ...): topic [0]
REBALANCED = re.compile(r"% Group .* rebalanced.*: (?:incremental )?(assign|revoke)")


class _Member:
    """A process, what it owns, and what its rebalances gave and took."""

    def __init__(self, command: list[str]) -> None:
        self.consumer = KcatConsumer(command)
        self.assignment: list[list[object]] = []
        self.revoked: list[list[object]] = []
        self.rebalances = 0

    def rebalanced(self, what: str, words: str) -> None:
        places = [[topic, int(number)] for topic, number in re.findall(r"(\S+) \[(\d+)\]", words)]
        if what == "assign":
            self.rebalances += 1
            self.assignment += places
        else:
            self.revoked += places
            self.assignment = [owned for owned in self.assignment if owned not in places]


class GroupOperations:
    members: dict[str, _Member]
    _command: Callable[..., list[str]]

    def member_join(
        self,
        member: str,
        group: str,
        topics: list[str],
        pattern: str | None,
        settings: JsonObject,
    ) -> None:
        reset = settings["reset"]
        chosen = {
            "client.id": member,
            "auto.offset.reset": {"none": "error"}.get(reset, reset),
            "enable.auto.commit": str(settings["auto_commit"]).lower(),
            "auto.commit.interval.ms": 100,
            "partition.assignment.strategy": settings["assignor"] or "range",
            "session.timeout.ms": settings["session_timeout_ms"],
            "heartbeat.interval.ms": settings["heartbeat_interval_ms"],
            "topic.metadata.refresh.interval.ms": settings["metadata_max_age_ms"],
            "fetch.wait.max.ms": 100,
        }
        if settings["instance_id"]:
            chosen["group.instance.id"] = settings["instance_id"]
        subscription = [f"^{pattern}"] if pattern else topics
        command = self._command(f"-G{group}", "-J", "-u", *subscription, **chosen)
        self.members[member] = _Member(command)

    def member_poll(self, member: str, count: int, timeout_ms: int) -> JsonObject:
        polled = self.members[member]
        found: list[JsonObject] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            left = deadline - time.monotonic() if len(found) < count else 0.0
            for line in polled.consumer.lines(max(left, 0.0)):
                if line.startswith("{"):
                    found.append(consumed(line))
                    break
                if told := REBALANCED.match(line):
                    polled.rebalanced(told[1], line)
                elif "ERROR" in line:
                    raise to_error(line)
            else:
                return {
                    "records": found,
                    "assignment": polled.assignment,
                    "rebalances": polled.rebalances,
                    "revoked": polled.revoked,
                }

    def member_close(self, member: str) -> None:
        if (closed := self.members.pop(member, None)) is not None:
            closed.consumer.close()
