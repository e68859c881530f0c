"""The walk in CONTRIBUTING.md is the way that a record really takes."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType

from tests.e2e.produce_requests import batch, create_topic, produce
from tests.e2e.raw_client import RawClient
from tidelog.testing import Broker

ROOT = Path(__file__).parents[2]
STOP = re.compile(r"^(\d+)\. `([\w/]+\.py)` `([\w.]+)`: ", re.MULTILINE)
STOPS = 10


def stops() -> list[tuple[str, str]]:
    """The file and the function of each stop."""
    found = STOP.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert [int(number) for number, _, _ in found] == list(range(1, STOPS + 1))
    return [(path, name) for _, path, name in found]


class Calls:
    """The functions of the package that were called while it listens, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.listens = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if not self.listens or event != "call":
            return
        _, inside, path = frame.f_code.co_filename.rpartition("src/tidelog/")
        if inside:
            self.seen.append((path, frame.f_code.co_qualname))


def test_a_record_takes_the_ten_stops_in_their_order() -> None:
    calls = Calls()
    before = sys.getprofile()
    threading.setprofile(calls)
    try:
        with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t", durability="fsync")
            calls.listens = True
            answer = client.call("Produce", 9, produce("t", batch([b"a record"])))
            calls.listens = False
    finally:
        threading.setprofile(before)
    assert answer.responses[0].partition_responses[0].error_code == 0
    position = 0
    for stop in stops():
        assert stop in calls.seen[position:], f"{stop} was not reached, or not in this order"
        position = calls.seen.index(stop, position) + 1
