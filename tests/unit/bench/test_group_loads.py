"""The group loads against the real broker: what they commit is what they find."""

import os
import time
from pathlib import Path

import pytest

from bench.loads import groups
from bench.standalone import check_offsets, create_topic, wait_for_offsets
from bench.wire import Connection
from tidelog.testing import Broker


def test_committed_offsets_are_found_by_a_later_broker(tmp_path: Path) -> None:
    settings = {"num.partitions": "12"}
    with Broker(data_dir=str(tmp_path), settings=settings) as broker:
        port = port_of(broker)
        connection = Connection(port)
        create_topic(connection, "offsets")
        connection.close()
        done = groups.commit(port, os.getpid(), "offsets", 5, 12)
        assert done["offsets"] == 60
    with Broker(data_dir=str(tmp_path), settings=settings) as broker:
        port = port_of(broker)
        result = wait_for_offsets(port, "offsets", 5, time.perf_counter())
        assert result["elapsed_s"] >= result["loaded_s"] >= 0
        check_offsets(port, "offsets", 5, 12)
        # A group that committed nothing is found out.
        with pytest.raises(RuntimeError, match="bench-group-5"):
            check_offsets(port, "offsets", 6, 12)


def test_members_are_measured_in_step_and_spread_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_HEARTBEAT_INTERVAL_S", 0.02)
    monkeypatch.setattr(groups, "_COMMIT_INTERVAL_S", 0.03)
    settings = {"num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
    with Broker(data_dir=str(tmp_path), settings=settings) as broker:
        port = port_of(broker)
        connection = Connection(port)
        create_topic(connection, "held")
        connection.close()
        result = groups.hold(port, os.getpid(), "held", 3, 2, 2, 1.0)
    for when in ("in_step_", ""):
        assert result[f"{when}heartbeats"] > 6
        assert result[f"{when}commits"] > 6
        assert 0 < result[f"{when}p50_ms"] <= result[f"{when}p99_ms"]


def port_of(broker: Broker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])
