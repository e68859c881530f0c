"""One connection, several requests in flight: offsets come in the order of sending."""

from __future__ import annotations

import os
import random

from tests.e2e.produce_requests import batch, create_topic, produce
from tests.e2e.raw_client import RawClient
from tidelog.model import Codec
from tidelog.testing import Broker

ROUNDS = 10_000
IN_FLIGHT = 5
SIZES = (1, 10, 100, 2_000, 40_000)


def prepared_batches(chance: random.Random) -> list[bytes]:
    """Batches of every codec and of very different sizes."""
    made = []
    for codec in Codec:
        for size in SIZES:
            values = [os.urandom(size) for _ in range(chance.randrange(1, 8))]
            made.append(batch(values, codec))
    return made


def test_offsets_come_in_send_order_with_five_requests_in_flight() -> None:
    chance = random.Random(5)
    batches = prepared_batches(chance)
    counts = [int.from_bytes(each[57:61], "big") for each in batches]
    # A topic that inflates, so that large batches are prepared on a thread and small ones inline.
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        create_topic(client, "order", record_validation="full")
        sent: list[int] = []
        expected = 0
        answered = 0
        while answered < ROUNDS:
            while len(sent) < IN_FLIGHT and answered + len(sent) < ROUNDS:
                chosen = chance.randrange(len(batches))
                acks = chance.choice((1, -1))
                client.send("Produce", 9, produce("order", batches[chosen], acks=acks))
                sent.append(chosen)
            correlation_id, response = client.receive()
            answer = response.responses[0].partition_responses[0]
            assert answer.error_code == 0, answer.error_message
            assert answer.base_offset == expected
            expected += counts[sent.pop(0)]
            answered += 1
            assert correlation_id == answered + 1
    assert answered == ROUNDS
