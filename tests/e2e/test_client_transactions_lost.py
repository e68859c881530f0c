"""Transactions of our own client with connections that break, before and after the broker acts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.own_transactions import PARTITIONS, committed, write
from tidelog.client import aio_transactions
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_transactions import TransactionalProducer
from tidelog.client.connection import Call
from tidelog.client.faults import NetworkError
from tidelog.client.group_admin import committed_offsets
from tidelog.client.settings import TransactionSettings
from tidelog.client.transaction_faults import TransactionAbortableError
from tidelog.client.transactions import VERSION_1, VERSION_2, GroupMetadata, Protocol
from tidelog.model import TopicPartition

TRANSACTIONS = 60
FAULTS_OF_100 = 12
FIRST = TopicPartition("t", 0)


class Breaking:
    """Breaks the connection of some requests as soon as they are sent: who knows what they do."""

    def __init__(self, producer: TransactionalProducer, chance: random.Random) -> None:
        self.broken: dict[str, int] = {}
        self._network = network = producer.network
        submit = network.submit

        def break_some(call: Call, done: Any) -> None:
            submit(call, done)
            if chance.random() * 100 < FAULTS_OF_100:
                self.broken[call.api] = self.broken.get(call.api, 0) + 1
                for channel in list(network._channels.values()):
                    network._lose(channel, NetworkError(channel.connection.address, "broken"))

        network.submit = break_some  # type: ignore[method-assign]


@pytest.mark.parametrize("protocol", [VERSION_1, VERSION_2], ids=["v1", "v2"])
def test_what_a_producer_was_told_is_what_readers_find(tmp_path: Path, protocol: Protocol) -> None:
    chance = random.Random(20)
    expected: list[str] = []
    last_offset = ends = 0
    with (
        BrokerProcess(tmp_path / "data") as broker,
        Client(broker.bootstrap_servers) as client,
        TransactionalProducer(broker.bootstrap_servers, TransactionSettings("x")) as producer,
    ):
        client.run(create_topic(client.cluster, NewTopic("t", partitions=PARTITIONS)))
        producer.init()
        producer.transactional.protocol = protocol
        breaking = Breaking(producer, chance)
        for number in range(1, TRANSACTIONS + 1):
            values = [f"{number:03}-{each}" for each in range(chance.randrange(1, 6))]
            try:
                producer.begin()
                write(producer, "t", *values)
                if chance.random() < 0.5:
                    producer.flush()
                if chance.random() < 0.5:
                    producer.send_offsets({FIRST: number}, GroupMetadata("g"))
                else:
                    number = last_offset
                if chance.random() < 0.3:
                    producer.abort()
                    ends += 1
                    continue
                producer.commit()
            except TransactionAbortableError:
                producer.abort()
                continue
            ends += 1
            expected += values
            last_offset = number
        offsets = client.run(committed_offsets(client.cluster, "g", [FIRST]))
        assert committed(broker.bootstrap_servers, "t") == sorted(expected)
    assert offsets == {FIRST: last_offset}
    assert ends >= TRANSACTIONS * 9 // 10
    assert {"EndTxn", "Produce", "TxnOffsetCommit"} <= breaking.broken.keys(), breaking.broken
    assert sum(breaking.broken.values()) > 20


async def run_story(
    producer: aio_transactions.TransactionalProducer, chance: random.Random
) -> list[str]:
    """Tasks that send records and offsets side by side; what was committed."""
    expected = []
    for number in range(TRANSACTIONS // 2):
        values = [f"{number:03}-{each}" for each in range(chance.randrange(1, 6))]
        records = [
            ProducerRecord("t", value.encode(), partition=index % PARTITIONS)
            for index, value in enumerate(values)
        ]
        producer.begin()
        await asyncio.gather(
            *(producer.send(record) for record in records),
            producer.send_offsets({FIRST: number}, GroupMetadata("g")),
        )
        if chance.random() < 0.3:
            await producer.abort()
        else:
            await producer.commit()
            expected += values
    return expected


@pytest.mark.parametrize("protocol", [VERSION_1, VERSION_2], ids=["v1", "v2"])
def test_tasks_that_send_side_by_side_find_the_same(tmp_path: Path, protocol: Protocol) -> None:
    chance = random.Random(30)
    broken = 0

    async def scenario(servers: str) -> list[str]:
        async with aio_transactions.TransactionalProducer(
            servers, TransactionSettings("x")
        ) as producer:
            await producer.init()
            producer.transactional.protocol = protocol
            network = producer.network
            request = network.request

            async def break_some(call: Call) -> object:
                nonlocal broken
                answer = asyncio.ensure_future(request(call))
                if chance.random() * 100 < FAULTS_OF_100:
                    broken += 1
                    # At some moment between sending it and the answer.
                    await asyncio.wait((answer,), timeout=chance.random() / 500)
                    for channel in list(network._channels.values()):
                        channel.lose(NetworkError(channel.connection.address, "broken"))
                return await answer

            network.request = break_some  # type: ignore[method-assign]
            return await run_story(producer, chance)

    with BrokerProcess(tmp_path / "data") as broker, Client(broker.bootstrap_servers) as client:
        client.run(create_topic(client.cluster, NewTopic("t", partitions=PARTITIONS)))
        expected = asyncio.run(scenario(broker.bootstrap_servers))
        assert committed(broker.bootstrap_servers, "t") == sorted(expected)
    assert len(expected) > TRANSACTIONS // 2
    assert broken > 10
