"""Our client leaves transactions to others (KIP-939), whatever time passes and whoever dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.own_transactions import PARTITIONS, committed, write
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.blocking import Client
from tidelog.client.blocking_transactions import TransactionalProducer
from tidelog.client.settings import TransactionSettings
from tidelog.client.transaction_faults import ProducerFencedError
from tidelog.client.transactions import init_transactional_id
from tidelog.errors import KafkaError

SETTINGS = TransactionSettings("x", timeout_ms=1, two_phase=True)


@pytest.mark.parametrize("commits", [True, False])
def test_what_was_prepared_is_taken_over_and_ended_by_another(
    tmp_path: Path, commits: bool
) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Client(broker.bootstrap_servers) as client:
        servers = broker.bootstrap_servers
        client.run(create_topic(client.cluster, NewTopic("t", partitions=PARTITIONS)))
        with TransactionalProducer(servers, SETTINGS) as writer:
            assert writer.init().ongoing is None
            writer.begin()
            write(writer, "t", "a", "b")
            left = writer.prepare()
            assert left is not None
            broker.kill()
            broker.start()
            with TransactionalProducer(servers, SETTINGS) as keeper:
                ongoing = keeper.init(keep_prepared=True).ongoing
                assert ongoing is not None
                assert (ongoing.producer_id, ongoing.producer_epoch) == (
                    left.producer_id,
                    left.producer_epoch,
                )
                with pytest.raises(ProducerFencedError):
                    writer.commit()
                keeper.commit() if commits else keeper.abort()
                keeper.begin()
                write(keeper, "t", "c")
                keeper.commit()
                assert keeper.init(keep_prepared=True).ongoing is None
        assert committed(servers, "t") == (["a", "b", "c"] if commits else ["c"])


def test_a_two_phase_producer_that_is_not_the_current_one_aborts_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Client(broker.bootstrap_servers) as client:
        servers = broker.bootstrap_servers
        client.run(create_topic(client.cluster, NewTopic("t", partitions=PARTITIONS)))
        first = client.run(init_transactional_id(client.cluster, SETTINGS))
        with TransactionalProducer(servers, SETTINGS) as writer:
            writer.init()
            writer.begin()
            write(writer, "t", "a")
            writer.flush()
            with pytest.raises(ProducerFencedError):
                client.run(init_transactional_id(client.cluster, SETTINGS, first))
            writer.commit()
        assert committed(servers, "t") == ["a"]


def test_a_broker_that_forbids_it_is_named_with_its_setting(tmp_path: Path) -> None:
    settings = {"transaction.two.phase.commit.enable": "false"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with TransactionalProducer(broker.bootstrap_servers, SETTINGS) as producer:
            with pytest.raises(KafkaError, match=r"transaction\.two\.phase\.commit\.enable=true"):
                producer.init()
