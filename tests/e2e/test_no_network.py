"""A broker needs no network but the loopback: it runs where there is nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.root]

PROGRAM = """
import socket, sys
from confluent_kafka import Consumer, Producer
from tidelog.testing import Broker

assert [name for _, name in socket.if_nameindex()] == ["lo"], socket.if_nameindex()
try:
    socket.create_connection(("192.0.2.1", 80), 1)
except OSError as error:
    print("outside:", error.strerror)
with Broker(data_dir=sys.argv[1], settings={"metrics.listener": "127.0.0.1:0"}) as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"hello")
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g",
                         "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    print("read:", consumer.poll(30).value())
    consumer.close()
"""


def test_a_broker_runs_without_any_network_outside(tmp_path: Path) -> None:
    assert shutil.which("unshare") and shutil.which("ip")
    inside = 'ip link set lo up && exec "$@"'
    command = ["unshare", "-rn", "sh", "-c", inside, "sh", sys.executable, "-c", PROGRAM]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "read: b'hello'" in done.stdout and "outside: Network is unreachable" in done.stdout
