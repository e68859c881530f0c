"""Transactions that are left to somebody else (KIP-939), on a broker that is killed meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.kafka_files import dump
from tests.e2e.raw_client import RawClient
from tests.e2e.transaction_script import TransactionScript
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.testing import Broker

INIT_PRODUCER_ID = 22
NO_TIMEOUT_MS = (1 << 31) - 1
SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


def come(client: RawClient, *, keeps: bool = False) -> Any:
    request = InitProducerIdRequest("one", 1, enable2_pc=True, keep_prepared_txn=keeps)
    answer = client.call("InitProducerId", 6, request)
    assert answer.error_code == ErrorCode.NONE
    return answer


@pytest.mark.java
def test_a_two_phase_transaction_outlives_its_producer_and_its_broker(tmp_path: Path) -> None:
    """And Kafka's dump tool reads what is kept of it."""
    settings = {**SETTINGS, "transaction.max.timeout.ms": "1"}
    with BrokerProcess(tmp_path, settings=settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            script = TransactionScript(client)
            first = come(client)
            wrote = first.producer_id, first.producer_epoch
            assert script.produce("one", wrote, 0, version=12) == ErrorCode.NONE
        broker.kill()
        broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            script.client = client
            taken = come(client, keeps=True)
            assert (taken.ongoing_txn_producer_id, taken.ongoing_txn_producer_epoch) == wrote
            keeper = taken.producer_id, taken.producer_epoch
            assert keeper == (wrote[0], wrote[1] + 1)
            script.offsets()
            script.end("one", wrote)
            goes_on = script.end("one", keeper)
            assert goes_on == (keeper[0], keeper[1] + 1)
            script.settle("one")
            script.offsets()
            assert script.produce("one", goes_on, 0, version=12) == ErrorCode.NONE
        codes = [each[1] for each in script.answers if str(each[0]).startswith("end one")]
        assert codes == ["PRODUCER_FENCED", "NONE"]
        ends = [each[1] for each in script.answers if each[0] == "ends"]
        held, released = ends
        assert isinstance(held, list) and isinstance(released, list)
        assert (held[1][0], released[1][0]) == ((0, 0), (0, 2))
    (log,) = (tmp_path / "__transaction_state-0").glob("*.log")
    told = dump("--transaction-log-decoder", files=[log])
    lines = [line.partition("payload: ")[2] for line in told.splitlines() if "payload: " in line]
    values = [json.loads(each)["data"] for each in lines]
    assert [each["transactionStatus"] for each in values] == [0, 1, 1, 2, 4, 1]
    assert [each["producerEpoch"] for each in values] == [0, 0, 0, 1, 2, 2]
    assert {each["transactionTimeoutMs"] for each in values} == {NO_TIMEOUT_MS}


def test_only_our_own_clients_are_told_of_it() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        told = {}
        for name in ("tidelog", "apache-kafka-java"):
            request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
            answer = client.call("ApiVersions", 4, request)
            (found,) = [each for each in answer.api_keys if each.api_key == INIT_PRODUCER_ID]
            told[name] = found.max_version
        assert told == {"tidelog": 6, "apache-kafka-java": 5}


def test_the_setting_switches_it_off() -> None:
    settings = {"transaction.two.phase.commit.enable": "false"}
    with Broker(settings=settings) as broker, RawClient(broker.bootstrap_servers) as client:
        script = TransactionScript(client)
        request = InitProducerIdRequest("one", 1, enable2_pc=True)
        answer = client.call("InitProducerId", 6, request)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        script.init("one")
