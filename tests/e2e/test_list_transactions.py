"""A broker that lists very many transactional ids serves others meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.e2e.in_process import InProcessBroker, RawConnection
from tidelog.coordinators.transactions.transaction import State, Transaction
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest
from tidelog.server.pieces import PIECE_UNITS

IDS = 20 * PIECE_UNITS
# In more than one shard, so that they are not looked at in one go either.
SETTINGS = {"transaction.state.log.num.partitions": "3"}


class Counted(dict[str, Transaction]):
    """Transactions by their ids; tells the loop's turn in which each was looked at."""

    def __init__(self, known: dict[str, Transaction], turns: list[int]) -> None:
        super().__init__(known)
        self._turns = turns

    def get(self, key: str, default: Any = None) -> Any:
        self._turns[-1] += 1
        return super().get(key, default)


async def _fill(broker: InProcessBroker, client: RawConnection, turns: list[int]) -> None:
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=["first"])
    await client.call("FindCoordinator", 4, find)
    while True:
        init = await client.call("InitProducerId", 4, InitProducerIdRequest("first", 60_000))
        if init.error_code == ErrorCode.NONE:
            break
    coordinator = broker.parts.transactions.coordinator
    for number in range(IDS):
        name = f"id-{number}"
        coordinator._slot_of(name).shard.transactions[name] = Transaction(
            name, number, state=State.ONGOING if number % 2 else State.COMPLETE_COMMIT
        )
    shards = list(coordinator.shards())
    assert len(shards) == 3
    for shard in shards:
        shard.transactions = Counted(shard.transactions, turns)


async def _scenario(directory: Path) -> None:
    turns = [0]

    async def count_turns() -> None:
        while True:
            turns.append(0)
            await asyncio.sleep(0)

    async with InProcessBroker(directory, SETTINGS) as broker:
        client = broker.connect()
        await _fill(broker, client, turns)
        counting = asyncio.create_task(count_turns())
        listed = await client.call("ListTransactions", 1, ListTransactionsRequest())
        counting.cancel()
        assert listed.error_code == ErrorCode.NONE
        found = {each.transactional_id for each in listed.transaction_states}
        assert found == {"first", *(f"id-{number}" for number in range(IDS))}
        assert sum(turns) == IDS + 1
        assert max(turns) <= 2 * PIECE_UNITS
        request = ListTransactionsRequest(["Ongoing"], [1, 2, 3], -1, "id-[0-9]")
        some = await client.call("ListTransactions", 2, request)
        states = {each.transactional_id: each.transaction_state for each in some.transaction_states}
        assert states == {"id-1": "Ongoing", "id-3": "Ongoing"}


def test_a_list_of_very_many_transactions_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_scenario(tmp_path), 60))
