"""The same questions to Apache Kafka and to a broker of ours, and the answers side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.e2e.raw_client import RawClient
from tests.peers import ApacheKafka
from tidelog.testing import Broker

# Asks a broker, and returns what it answered.
Play = Callable[[RawClient], list[object]]


def kafka_fixture(settings: Mapping[str, str]) -> Any:
    """The address of an Apache Kafka, for the tests of a module."""

    @pytest.fixture(scope="module")
    def kafka() -> Iterator[str]:
        with ApacheKafka(settings=settings) as running:
            yield running.bootstrap_servers

    return kafka


def our_fixture(settings: Mapping[str, str]) -> Any:
    """The address of a broker of ours, for the tests of a module."""

    @pytest.fixture(scope="module")
    def ours() -> Iterator[str]:
        with Broker(settings=settings) as running:
            yield running.bootstrap_servers

    return ours


def answers_of_kafka(play: Play, settings: Mapping[str, str]) -> list[object]:
    with ApacheKafka(settings=settings) as kafka, RawClient(kafka.bootstrap_servers) as client:
        return play(client)


def assert_agrees(
    play: Play, settings: Mapping[str, str], expected: list[object], at_least: int
) -> None:
    """Every answer is Kafka's, and there are as many as the script is known to get."""
    with Broker(settings=settings) as broker, RawClient(broker.bootstrap_servers) as client:
        answers = play(client)
    assert len(answers) == len(expected) >= at_least
    pairs = zip(answers, expected, strict=True)
    assert not [(ours, theirs) for ours, theirs in pairs if ours != theirs]
