"""Settings of groups and loggers on a running broker, and settings that nothing uses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.produce_requests import create_topic
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.errors import ErrorCode
from tidelog.model import ConfigOperation, ConfigResourceType
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tidelog.testing import Broker

INTERVAL = "consumer.heartbeat.interval.ms"
LOGGER = "tidelog.server.housekeeping"


def alter(client: RawClient, kind: int, name: str, **settings: str) -> ErrorCode:
    """Set settings, which are given with underscores for dots."""
    configs = [
        AlterableConfig(key.replace("_", "."), int(ConfigOperation.SET), value)
        for key, value in settings.items()
    ]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, configs)], False)
    return ErrorCode(client.call("IncrementalAlterConfigs", 1, request).responses[0].error_code)


def described(client: RawClient, kind: int, name: str, key: str) -> str | None:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, [key])])
    configs = client.call("DescribeConfigs", 4, request).results[0].configs
    return configs[0].value if configs else None


def interval_of(client: RawClient, group: str) -> int:
    """How often a member that joins this group is told to be heard of."""
    request = ConsumerGroupHeartbeatRequest(group, f"{group}-member", 0)
    request.rebalance_timeout_ms = 60_000
    request.subscribed_topic_names = ["t"]
    request.topic_partitions = []
    find = FindCoordinatorRequest(coordinator_keys=[group])
    eventually(
        lambda: not client.call("FindCoordinator", 4, find).coordinators[0].error_code,
    )
    answers = []

    def has_joined() -> bool:
        answers.append(client.call("ConsumerGroupHeartbeat", 1, request))
        return not answers[-1].error_code

    eventually(has_joined, lambda: answers[-1])
    return int(answers[-1].heartbeat_interval_ms)


def test_a_groups_own_settings_are_obeyed_and_outlast_a_restart(tmp_path: Path) -> None:
    group = ConfigResourceType.GROUP
    with (
        Broker(data_dir=tmp_path) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        create_topic(client, "t")
        name = "a/b ☃"
        assert not alter(client, group, name, consumer_heartbeat_interval_ms="700")
        assert interval_of(client, name) == 700
        assert interval_of(client, "other") == 500
        too_short = alter(client, group, name, consumer_heartbeat_interval_ms="1")
        assert too_short is ErrorCode.INVALID_CONFIG
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert described(client, group, name, INTERVAL) == "700"
        assert interval_of(client, name) == 700
        listed = client.call("ListConfigResources", 1, ListConfigResourcesRequest([group]))
        assert [each.resource_name for each in listed.config_resources] == [name]


def test_a_setting_that_nothing_uses_is_taken_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        kind = ConfigResourceType.BROKER
        assert not alter(client, kind, "", log_cleaner_threads="2")
        assert not alter(client, kind, "0", log_cleaner_threads="3", max_connections="9")
        assert described(client, kind, "0", "log.cleaner.threads") == "3"
        assert described(client, kind, "", "log.cleaner.threads") == "2"
    assert caplog.text.count("not used by this broker settings=log.cleaner.threads") == 1
    assert "max.connections" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {f"listener.name.{'x' * 200}.{n}": "1" for n in range(900)},
            "broker id must be specified",
        ),
        ({"log.cleaner.threads": "\u2603" * 10_900}, "Invalid value \u2603"),
    ],
)
def test_a_refusal_that_quotes_a_lot_fits_the_oldest_answer(
    settings: dict[str, str], words: str
) -> None:
    changes = [AlterableConfig(name, ConfigOperation.SET, each) for name, each in settings.items()]
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        resource = AlterConfigsResource(ConfigResourceType.BROKER, "", changes)
        request = IncrementalAlterConfigsRequest([resource])
        [answer] = client.call("IncrementalAlterConfigs", 0, request).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert words in answer.error_message


@pytest.fixture
def _levels() -> Iterator[None]:
    logger = logging.getLogger(LOGGER)
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.mark.usefixtures("_levels")
def test_the_level_of_a_logger_is_shown_set_and_removed() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        kind = ConfigResourceType.BROKER_LOGGER
        inherited = described(client, kind, "0", LOGGER)
        assert not alter(client, kind, "0", tidelog_server_housekeeping="FATAL")
        assert described(client, kind, "0", LOGGER) == "FATAL"
        assert logging.getLogger(LOGGER).level == logging.CRITICAL
        removed = AlterableConfig(LOGGER, int(ConfigOperation.DELETE), None)
        resource = AlterConfigsResource(kind, "0", [removed])
        client.call("IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest([resource]))
        assert described(client, kind, "0", LOGGER) == inherited
        assert described(client, kind, "0", "asyncio") is None


@pytest.mark.parametrize("name", ["+-0", "--1", "+", "9" * 5_000, "\N{ARABIC-INDIC DIGIT ZERO}"])
def test_a_broker_whose_name_is_not_an_integer_is_refused_and_the_client_stays(name: str) -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        for kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
            request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)])
            (result,) = client.call("DescribeConfigs", 4, request).results
            assert result.error_code == ErrorCode.INVALID_REQUEST
            assert result.error_message == f"Broker id must be an integer, but it is: {name}"
            assert alter(client, kind, name, root="INFO") is ErrorCode.INVALID_REQUEST
