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


def port_of(broker: Broker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])
