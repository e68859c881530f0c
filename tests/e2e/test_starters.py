"""The starters do what their docstrings say, as processes, with some of them killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.example_process import ExampleProcess, documented

# As `tidelog up` has them.
SETTINGS = {"auto.create.topics.enable": "true", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_hello_world_is_received_by_one_who_came_before(servers: str, how: signal.Signals) -> None:
    shown = documented("hello_world")
    with ExampleProcess(servers, "hello_world", "receive") as receiver:
        receiver.wait_for_line("waiting")
        with ExampleProcess(servers, "hello_world", "send") as sender:
            assert sender.ends() == shown["send",]
        receiver.wait_for_line("received")
        assert receiver.stop(how) == shown["receive",]


def test_hello_world_is_received_by_one_who_comes_later_and_only_once(servers: str) -> None:
    shown = documented("hello_world")
    with ExampleProcess(servers, "hello_world", "send") as sender:
        assert sender.ends() == shown["send",]
    with ExampleProcess(servers, "hello_world", "receive") as receiver:
        receiver.wait_for_line("received")
        assert receiver.stop() == shown["receive",]
    with (
        ExampleProcess(servers, "hello_world", "receive") as again,
        ExampleProcess(servers, "hello_world", "send", "and again") as sender,
    ):
        assert sender.ends() == ["sent 'and again' (partition 0, offset 1)"]
        again.wait_for_line("received")
        assert again.stop()[1:] == ["received 'and again' (partition 0, offset 1)"]
