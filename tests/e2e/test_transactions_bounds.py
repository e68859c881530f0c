"""What transactions may cost a broker: ids of any length, and very many of them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.produce_requests import create_topic
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

LONG = "x" * 10_000_000
LONGEST = "x" * 32_767
# A request for each API that takes a transactional id, in its newest version for clients.
ASKED: dict[str, tuple[int, object]] = {
    "InitProducerId": (5, InitProducerIdRequest(LONG, 60_000)),
    "AddPartitionsToTxn": (3, AddPartitionsToTxnRequest([], LONG, 1, 0, [])),
    "AddOffsetsToTxn": (4, AddOffsetsToTxnRequest(LONG, 1, 0, "g")),
    "EndTxn": (5, EndTxnRequest(LONG, 1, 0, True)),
    "TxnOffsetCommit": (5, TxnOffsetCommitRequest(LONG, "g", 1, 0, -1, "", None, [])),
    "Produce": (12, ProduceRequest(LONG, -1, 1_000, [])),
    "FindCoordinator": (4, FindCoordinatorRequest(key_type=1, coordinator_keys=[LONG])),
    "DescribeTransactions": (0, DescribeTransactionsRequest([LONG])),
    "ListTransactions": (2, ListTransactionsRequest([], [], -1, LONG)),
}
STATE_LOGS = "__transaction_state-*/*.log"
OPEN_IDS = 100_000
CONNECTIONS = 200
# What a transaction that is open costs, with its place in the log that is read back.
BYTES_EACH = 4_000


def ready(servers: str) -> None:
    """The log of transactions is there."""

    def is_ready() -> bool:
        with RawClient(servers) as client:
            # The first one that asks for it has it made.
            find = FindCoordinatorRequest(key_type=1, coordinator_keys=["first"])
            client.call("FindCoordinator", 4, find)
            answer = client.call("InitProducerId", 4, InitProducerIdRequest("first", 60_000))
        return bool(answer.error_code == ErrorCode.NONE)

    eventually(is_ready)


def test_an_id_of_ten_megabytes_closes_the_connection_and_writes_nothing(tmp_path: Path) -> None:
    """Kafka takes no string that is longer than 32,767 bytes, whatever the version says."""
    with BrokerProcess(tmp_path) as broker:
        ready(broker.bootstrap_servers)
        written = sum(log.stat().st_size for log in tmp_path.glob(STATE_LOGS))
        before = broker.resident_bytes()
        for name, (version, request) in ASKED.items():
            with RawClient(broker.bootstrap_servers) as client:
                client.send(name, version, request)
                assert client.is_closed(), name
        assert broker.resident_bytes() - before < 40_000_000
        assert sum(log.stat().st_size for log in tmp_path.glob(STATE_LOGS)) == written
        with RawClient(broker.bootstrap_servers) as client:
            answer = client.call("InitProducerId", 5, InitProducerIdRequest(LONGEST, 60_000))
        assert answer.error_code == ErrorCode.NONE


def _spread(clients: list[RawClient], name: str, version: int, requests: list[Any]) -> list[Any]:
    """The answers; each connection has its share in flight, of which a broker takes one a time."""
    count = len(clients)
    for number, client in enumerate(clients):
        frames = (client.encode(name, version, each) for each in requests[number::count])
        client.socket.sendall(b"".join(frames))
    return [clients[number % count].receive()[1] for number in range(len(requests))]


@pytest.mark.long
def test_a_hundred_thousand_open_transactions_are_bounded_in_memory(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, ExitStack() as opened:
        ready(broker.bootstrap_servers)
        clients = [
            opened.enter_context(RawClient(broker.bootstrap_servers)) for _ in range(CONNECTIONS)
        ]
        create_topic(clients[0], "t", 1)
        before = broker.resident_bytes()
        ids = [f"open-{number}" for number in range(OPEN_IDS)]
        inits = [InitProducerIdRequest(each, 900_000) for each in ids]
        given = _spread(clients, "InitProducerId", 4, inits)
        assert {answer.error_code for answer in given} == {ErrorCode.NONE}
        topics = [AddPartitionsToTxnTopic("t", [0])]
        adds = [
            AddPartitionsToTxnRequest([], each, got.producer_id, got.producer_epoch, topics)
            for each, got in zip(ids, given, strict=True)
        ]
        answers = _spread(clients, "AddPartitionsToTxn", 3, adds)
        codes = {
            each.partition_error_code
            for answer in answers
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        assert codes == {ErrorCode.NONE} and len(answers) == OPEN_IDS
        listed = clients[0].call("ListTransactions", 1, ListTransactionsRequest(["Ongoing"]))
        assert len(listed.transaction_states) == OPEN_IDS
        growth = broker.resident_bytes() - before
        assert growth < OPEN_IDS * BYTES_EACH, f"{growth / 1e6:.0f} MB"
