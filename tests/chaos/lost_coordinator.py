"""``python -m tests.chaos.lost_coordinator``: librdkafka waits for a coordinator that has gone.

librdkafka 2.16.0 ends what it has for a broker that metadata does not list any more, and its cache
of group coordinators goes on naming it (librdkafka 5511). `send_offsets_to_transaction` then
sends nothing, and its time-out is not heeded either (librdkafka 5456): the call never returns, also
when the broker is back. Here a group's coordinator is killed, the producer refreshes its metadata,
the broker comes back, and proxies before all brokers write down what the producer sends.

Prints the trace, and last how many requests followed the answer to AddOffsetsToTxn.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from scripts.guardian import guard
from tests.chaos.proxied import ProxiedBrokers
from tests.compat.wire import Wire
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.testing import ZooKeeper

BROKERS: Final = 3
PARTITIONS: Final = 3
TIMEOUT_S: Final = 5.0
_SECONDS: Final = 60.0
_CLIENT: Final = "suspect"
_NAMES: Final = {
    0: "Produce",
    3: "Metadata",
    10: "FindCoordinator",
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
}
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": "3000",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}


class Trace:
    """The requests of one client, by the proxies that saw them."""

    def __init__(self, brokers: ProxiedBrokers) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self.requests: list[str] = []
        for broker, proxy in enumerate(brokers.proxies):
            proxy.watch = lambda frame, broker=broker: self._see(broker, frame)

    def _see(self, broker: int, frame: bytes) -> None:
        api_key, _, _, length = struct.unpack_from(">hhih", frame)
        if frame[10 : 10 + length] == _CLIENT.encode() and api_key in _NAMES:
            with self._lock:
                self.requests.append(_NAMES[api_key])
            self.say(f"{_NAMES[api_key]} to broker {broker}")

    def say(self, what: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._began:7.3f} {what}\n")
        sys.stdout.flush()


def _coordinator(brokers: ProxiedBrokers, group: str) -> int:
    """The broker that others name; -1 where none."""
    running = next(each for each in brokers.ids if brokers.is_running(each))
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    with RawClient(brokers.server(running)) as client:
        (answer,) = client.call("FindCoordinator", 4, request).coordinators
    return int(answer.node_id)


class Program:
    """Writes with a group's offsets in the transaction, as a copier does."""

    def __init__(self, servers: str, group: str, client: str = _CLIENT) -> None:
        self.consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "client.id": client,
                "transactional.id": client,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(_SECONDS)

    def write(self) -> None:
        self.producer.begin_transaction()
        for partition in range(PARTITIONS):
            self.producer.produce("out", b"one", partition=partition)
        assert self.producer.flush(_SECONDS) == 0

    def send_offsets(self) -> None:
        group = self.consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction([TopicPartition("out", 0, 1)], group, TIMEOUT_S)


def _run(brokers: ProxiedBrokers) -> None:
    wire = Wire(brokers.bootstrap_servers, BROKERS)
    wire.create_topic("out", PARTITIONS)
    wire.close()
    trace, group = Trace(brokers), "copiers"
    program = Program(brokers.bootstrap_servers, group)
    program.write()
    program.send_offsets()
    program.producer.commit_transaction(_SECONDS)
    killed = _coordinator(brokers, group)
    brokers.kill(killed)
    trace.say(f"-- broker {killed}, which coordinates the group, is killed")
    eventually(lambda: _coordinator(brokers, group) not in (killed, -1), seconds=_SECONDS)
    trace.say(f"-- broker {_coordinator(brokers, group)} coordinates the group")
    program.write()
    brokers.restart(killed)
    trace.say(f"-- broker {killed} is back; send_offsets_to_transaction, {TIMEOUT_S:g} s at most")
    returned = threading.Event()

    def send_offsets() -> None:
        with suppress(KafkaException):
            program.send_offsets()
        returned.set()

    threading.Thread(target=send_offsets, daemon=True).start()
    eventually(lambda: "AddOffsetsToTxn" in trace.requests[-1:] or returned.is_set())
    has_returned = returned.wait(4 * TIMEOUT_S)
    trace.say(f"-- {4 * TIMEOUT_S:g} s later: {'returned' if has_returned else 'not returned'}")
    asked = len(trace.requests) - trace.requests[::-1].index("AddOffsetsToTxn")
    sent = [each for each in trace.requests[asked:] if each not in ("Metadata", "Produce")]
    # The brokers are not what it waits for: another producer goes through them.
    other = Program(brokers.bootstrap_servers, group, "another")
    other.write()
    other.send_offsets()
    other.producer.commit_transaction(_SECONDS)
    trace.say("-- another producer has committed meanwhile")
    sys.stdout.write(f"requests after AddOffsetsToTxn: {len(sent)}\n")
    sys.stdout.flush()


def main() -> None:
    guard()
    with tempfile.TemporaryDirectory(prefix="tidelog-lost-") as directory:
        zookeeper = ZooKeeper().start()
        brokers = ProxiedBrokers(BROKERS, Path(directory), _SETTINGS, zookeeper.address)
        try:
            brokers.start()
            _run(brokers)
        finally:
            brokers.end()
            zookeeper.stop()
    # A producer in such a call cannot be closed.
    os._exit(0)


if __name__ == "__main__":
    main()
