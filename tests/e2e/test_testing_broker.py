"""`tidelog.testing.Broker` takes what a test has at hand, and names what it cannot use."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tidelog.client.admin import NewTopic, create_topic, describe_topic
from tidelog.client.blocking import Client
from tidelog.errors import ConfigError
from tidelog.testing import Broker


def test_paths_numbers_and_booleans_are_settings_as_they_are(tmp_path: Path) -> None:
    settings = {
        "num.partitions": 3,
        "log.retention.ms": 60_000,
        "auto.create.topics.enable": False,
        "log.dirs": [tmp_path / "data"],
        "log.cleaner.min.cleanable.ratio": 0.25,
    }
    with Broker(settings=settings) as broker, Client(broker.bootstrap_servers) as client:
        client.run(create_topic(client.cluster, NewTopic("orders")))
        assert len(client.run(describe_topic(client.cluster, "orders")).partitions) == 3
    assert (tmp_path / "data" / "orders-2").is_dir()


def test_a_directory_may_be_a_path_and_is_kept(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    with Broker(data_dir=directory) as broker, Client(broker.bootstrap_servers) as client:
        client.run(create_topic(client.cluster, NewTopic("orders", partitions=1)))
    with Broker(data_dir=directory) as broker, Client(broker.bootstrap_servers) as client:
        assert len(client.run(describe_topic(client.cluster, "orders")).partitions) == 1


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num.partitions": None}, "num.partitions: None is a NoneType"),
        ({"num.partitions": 2.5}, "Invalid value 2.5 for configuration num.partitions"),
        ({"num.partitions": True}, "Invalid value true for configuration num.partitions"),
        ({"log.dirs": b"/data"}, "log.dirs: b'/data' is a bytes"),
        ({"log.dirs": [b"/data"]}, "log.dirs: b'/data' is a bytes"),
        ({"num.partition": 3}, "unknown setting num.partition"),
        ({3: 4}, "the name of a setting is text, not 3"),
    ],
    ids=str,
)
def test_a_setting_that_does_not_fit_is_named_and_nothing_is_left_behind(
    settings: Any, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        Broker(settings=settings).start()
    assert named in str(caught.value)
    assert list(tmp_path.iterdir()) == []
