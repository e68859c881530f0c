"""What the matrix prepares and checks of groups by hand, below the clients.

Like `Wire` it shares no code with the broker under test and uses old versions, of which one is
flexible: FindCoordinator 0, OffsetCommit 2, OffsetFetch 2 and 7, DescribeGroups 0, LeaveGroup 0,
DeleteGroups 0.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.compat.connection import Address, Reader, array, string
from tests.compat.wire import SETTLE_TIMEOUT_S, Wire, WireError

# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
_NOT_YET_COORDINATOR = (14, 15, 16)
_UNSTABLE_OFFSET_COMMIT = 88
Place = tuple[str, int]


def _compact(text: str) -> bytes:
    """A string of a flexible version; those of the matrix are short."""
    encoded = text.encode()
    assert len(encoded) < 127
    return bytes([len(encoded) + 1]) + encoded


@dataclass(frozen=True)
class StoredGroup:
    """A classic group as the coordinator describes it; members by id, each with its client id."""

    state: str
    protocol: str
    client_ids: Mapping[str, str]


class GroupWire:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def find_coordinator(self, group: str) -> Address:
        """Its address, once the group has one: the first one asked for is made then."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            reader = self._wire.call(10, 0, string(group))
            code, _ = reader.take("hi")
            host = reader.string() or ""
            (port,) = reader.take("i")
            if code == 0:
                return host, port
            self._wait_or_raise(f"coordinator of {group}", code, deadline)

    def _call(self, group: str, api_key: int, version: int, body: bytes) -> Reader:
        return self._wire.call(api_key, version, body, self.find_coordinator(group))

    def _wait_or_raise(self, what: str, code: int, deadline: float) -> None:
        if code not in _NOT_YET_COORDINATOR or time.monotonic() > deadline:
            raise WireError(what, code)
        time.sleep(0.02)

    def commit(self, group: str, offsets: Mapping[Place, int], metadata: str = "") -> None:
        """Commit for a group without members."""
        topics = []
        for (topic, partition), offset in offsets.items():
            place = struct.pack(">iq", partition, offset) + string(metadata)
            topics.append(string(topic) + array([place]))
        head = string(group) + struct.pack(">i", -1) + string("") + struct.pack(">q", -1)
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            reader = self._call(group, 8, 2, head + array(topics))
            codes = set()
            for _ in range(reader.take("i")[0]):
                reader.string()
                codes |= {reader.take("ih")[1] for _ in range(reader.take("i")[0])}
            if codes == {0}:
                return
            self._wait_or_raise(f"commit for {group}", max(codes), deadline)

    def committed(self, group: str) -> dict[Place, tuple[int, str]]:
        """Offset and metadata of everything that the group has committed."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            reader = self._call(group, 9, 2, string(group) + struct.pack(">i", -1))
            found = {}
            for _ in range(reader.take("i")[0]):
                topic = reader.string() or ""
                for _ in range(reader.take("i")[0]):
                    partition, offset = reader.take("iq")
                    # confluent-kafka sends the zero byte that ends a string in C along.
                    found[topic, partition] = offset, (reader.string() or "").rstrip("\0")
                    reader.take("h")
            (code,) = reader.take("h")
            if code == 0:
                return found
            self._wait_or_raise(f"offsets of {group}", code, deadline)

    def stable_offset(self, group: str, topic: str, partition: int = 0) -> int:
        """What is committed once no transaction may change it, -1 for nothing; OffsetFetch 7."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            code, offset = self._stable_offset(group, topic, partition)
            if code == 0:
                return offset
            if code != _UNSTABLE_OFFSET_COMMIT:
                self._wait_or_raise(f"offsets of {group}", code, deadline)

    def _stable_offset(self, group: str, topic: str, partition: int) -> tuple[int, int]:
        head = b"\0" + _compact(group) + b"\2" + _compact(topic)
        body = head + b"\2" + struct.pack(">i", partition) + b"\0" + b"\1" + b"\0"
        reader = self._call(group, 9, 7, body)
        # No tagged fields, no throttling, one topic with its name, one partition.
        reader.take("bib")
        reader.raw(reader.take("B")[0] - 1)
        _, _, offset, _ = reader.take("biqi")
        reader.raw(max(reader.take("B")[0] - 1, 0))
        code, _, _, group_code = reader.take("hbbh")
        return group_code or code, offset

    def describe(self, group: str) -> StoredGroup:
        reader = self._call(group, 15, 0, array([string(group)]))
        _, code = reader.take("ih")
        if code:
            raise WireError(f"describe {group}", code)
        reader.string()
        state, _, protocol = reader.string(), reader.string(), reader.string()
        client_ids = {}
        for _ in range(reader.take("i")[0]):
            member_id = reader.string() or ""
            client_ids[member_id] = reader.string() or ""
            reader.string()
            for _ in range(2):
                reader.raw(reader.take("i")[0])
        return StoredGroup(state or "", protocol or "", client_ids)

    def remove_member(self, group: str, member_id: str) -> None:
        """Have a member leave without its knowing."""
        (code,) = self._call(group, 13, 0, string(group) + string(member_id)).take("h")
        if code:
            raise WireError(f"remove {member_id} of {group}", code)

    def delete(self, groups: Sequence[str]) -> None:
        """Delete what can be deleted of these groups; what cannot is no error."""
        for group in groups:
            self._call(group, 42, 0, array([string(group)]))
