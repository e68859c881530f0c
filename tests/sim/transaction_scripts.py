"""Scripts in which a message of a transaction comes late: Jepsen's report on Kafka, played.

A produce, the end of a transaction, its marker or the answer to a leader's question is held back
until the transaction that it belongs to is over, and the next one perhaps open; in between nothing
happens, or the coordinator changes, or the leader does. Whatever is late must change nothing.

Version 1 of the protocol cannot tell a late message from one of the next transaction in the same
epoch; so its producer goes on in a new epoch, as clients do whose request has no answer. Nor can it
tell a marker that its coordinator has sent twice: that one is played in version 2, whose epochs do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from tests.sim.stage import FETCH, Script, Stage
from tests.sim.transaction_clients import PARTITIONS, TOPIC, Written, find_coordinator
from tests.sim.transactions import Transactions, Transactor
from tidelog.client.aio import Client
from tidelog.client.connection import Call
from tidelog.client.metadata import CONTROLLER
from tidelog.client.operation import Operation, ask, refresh
from tidelog.client.settings import ClientSettings
from tidelog.cluster.names import TRANSACTIONS_TOPIC
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.testing.simulation.machines import Machine

# API keys.
PRODUCE: Final = 0
ADD_PARTITIONS: Final = 24
END: Final = 26
MARKERS: Final = 27

_STATE: Final = TopicPartition(TRANSACTIONS_TOPIC, 0)
_ID: Final = "late"
_PATIENCE_S: Final = 60.0
# Whoever waits for a late answer waits for as long as the script takes.
_SLOW: Final = ClientSettings(
    connect_timeout_ms=2_000, request_timeout_ms=300_000, operation_timeout_ms=300_000
)


class Play:
    """A producer whose messages may come late; each partition has a leader of its own."""

    def __init__(self, stage: Stage, version: int) -> None:
        self.stage = stage
        self.all = Transactions(stage.world, 0, stage.observer)
        self.all.patience_s = _PATIENCE_S
        # No transaction of a script outlives it, whoever is waited for.
        self.all.timeout_ms = int(_PATIENCE_S * 1000)
        self.producer = Transactor(self.all, _ID, _ID, version)
        self._late = Client(stage.world.servers, _SLOW, stage.world.client_host())

    async def begin(self) -> None:
        """Have the topics, with the coordinator leading the last partition; be given an id."""
        stage = self.stage
        client = stage.client
        await self._create("placeholder", [[0, 1, 2]])
        await client.run(refresh(client.cluster, ["placeholder"]))
        while not stage.observer.find(_STATE):
            # Asked for a coordinator, a broker has the topic made.
            await find_coordinator(client, _ID, of_group=False, topic="placeholder")
            await stage.sleep(0.1)
        state = stage.observer.image.topics[TRANSACTIONS_TOPIC].partitions[0]
        others = [each for each in range(3) if each != state.leader]
        leaders = (*others, state.leader)
        await self._create(TOPIC, [[each, *set(range(3)) - {each}] for each in leaders])
        for each in (stage.client, self._late):
            await each.run(refresh(each.cluster, [TOPIC]))
        await self.producer.begin()

    async def _create(self, name: str, replicas: list[list[int]]) -> None:
        topic = CreatableTopic(
            name, -1, -1,
            [CreatableReplicaAssignment(*each) for each in enumerate(replicas)],
            [CreatableTopicConfig("min.insync.replicas", "2")],
        )  # fmt: skip

        def asked() -> Operation[Any]:
            request = CreateTopicsRequest(topics=[topic])
            return (yield from ask(Call(CONTROLLER, "CreateTopics", request, 7)))

        response = await self.stage.client.run(asked())
        assert response.topics[0].error_code == ErrorCode.NONE, response
        places = [TopicPartition(name, each) for each in range(len(replicas))]
        await self.stage.until(lambda: all(map(self.is_led, places)), f"{name} is there")

    def is_led(self, place: TopicPartition) -> bool:
        ghost = self.stage.observer.find(place)
        state = None if ghost is None else ghost.state
        replica = None if ghost is None or state is None else ghost.replicas.get(state.leader)
        return state is not None and replica is not None and replica.epoch == state.leader_epoch

    def _leader_of(self, place: TopicPartition) -> Machine:
        ghost = self.stage.observer.find(place)
        assert ghost is not None and ghost.state is not None
        return self.stage.world.machines[ghost.state.leader]

    @property
    def coordinator(self) -> Machine:
        return self._leader_of(_STATE)

    def leader(self, partition: int) -> Machine:
        return self._leader_of(TopicPartition(TOPIC, partition))

    async def transact(self, *partitions: int) -> Written:
        """Begin a transaction that writes to these, and go no further."""
        written = self.producer.new()
        await self.producer.add(partitions)
        for each in partitions:
            await self.producer.produce(each, written)
        return written

    def send(self, machine: Machine, api: str, version: int, request: object) -> asyncio.Task[Any]:
        """Send something over a connection of its own; its answer, None where there is none."""

        async def sent() -> Any:
            call = Call(machine.broker_id, api, request, version)
            outcome = await self._late.network.request(call)
            return None if isinstance(outcome, TidelogError) else outcome

        return asyncio.create_task(sent())

    async def settled(self) -> None:
        """Every transaction has come to its end."""
        await self.stage.until(lambda: not self.all.observer.open(), "no transaction is open")

    async def finish(self) -> None:
        """What is still to come comes; then all must be as producers know it."""
        await self.all.judge()
        await self.producer.close()
        await self._late.close()


async def nothing(play: Play) -> None:
    """Nobody fails."""


async def coordinator_changes(play: Play) -> None:
    """And gives out an id itself."""
    await _deposed(play, play.coordinator, _STATE)
    await Transactor(play.all, "another", "another", 2).come()


async def leader_changes(play: Play) -> None:
    await _deposed(play, play.leader(0), TopicPartition(TOPIC, 0))


async def _deposed(play: Play, machine: Machine, place: TopicPartition) -> None:
    """It loses its session, and with it what it led; it lives on and is back."""
    stage = play.stage
    stage.expire(machine)
    await stage.gone(machine)
    await stage.until(lambda: play.is_led(place), f"{place} is led again")
    # A moment for the metadata, and for a coordinator to load.
    await stage.sleep(1.0)


Between = Callable[[Play], Awaitable[None]]


async def late_produce(stage: Stage, version: int, between: Between, *, opens: bool) -> None:
    """T10, T11: a batch comes after the abort of its transaction, or when the next one is open."""
    play = Play(stage, version)
    await play.begin()
    written = play.producer.new()
    await play.producer.add([0, 1])
    await play.producer.produce(1, written)
    leader = play.leader(0)
    held = stage.hold(PRODUCE, receiver=leader)
    late = play.send(leader, "Produce", *play.producer.produce_request(0, written))
    await stage.caught(held)
    await play.producer.end(written, committed=False)
    await play.settled()
    await between(play)
    if version == 1:
        await play.producer.begin()
    following = await play.transact(0, 2) if opens else None
    stage.release(held)
    answer = await late
    code = None if answer is None else answer.responses[0].partition_responses[0].error_code
    stage.must_not(code == ErrorCode.NONE, "I18 nothing behind its end", "a late batch was taken")
    following = following or await play.transact(0, 2)
    await play.producer.end(following, committed=True)
    await play.finish()


async def late_end(stage: Stage, version: int, between: Between, *, commits: bool) -> None:
    """T12: the end of a transaction is asked for again, and the first request comes in the next."""
    play = Play(stage, version)
    await play.begin()
    written = await play.transact(0, 1)
    coordinator = play.coordinator
    held = stage.hold(END, receiver=coordinator)
    late = play.send(coordinator, "EndTxn", *play.producer.end_request(commits))
    await stage.caught(held)
    await play.producer.end(written, committed=commits)
    await play.settled()
    await between(play)
    if version == 1:
        await play.producer.begin()
    following = await play.transact(0, 2)
    stage.release(held)
    await late
    await play.producer.end(following, committed=not commits)
    await play.finish()


async def late_marker(stage: Stage, version: int, between: Between) -> None:
    """T13, T15, T23: a marker comes when the next transaction of its producer is open."""
    play = Play(stage, version)
    await play.begin()
    written = await play.transact(0, 1)
    held = stage.hold(MARKERS, sender=play.coordinator, receiver=play.leader(0))
    await play.producer.end(written, committed=True)
    await stage.caught(held)
    await between(play)
    # Its coordinator, or the next one, asks again over another connection.
    await play.settled()
    following = await play.transact(0, 2)
    stage.release(held)
    await stage.sleep(1.0)
    await play.producer.end(following, committed=False)
    await play.settled()
    await play.producer.end(await play.transact(0, 1), committed=True)
    await play.finish()


async def late_verification(stage: Stage, version: int, between: Between) -> None:
    """T10: a leader hears that a transaction is open when its marker is written already."""
    play = Play(stage, version)
    await play.begin()
    written = play.producer.new()
    await play.producer.add([0, 1])
    await play.producer.produce(1, written)
    leader = play.leader(0)
    held = stage.hold(ADD_PARTITIONS, sender=play.coordinator, receiver=leader, answer=True)
    late = play.send(leader, "Produce", *play.producer.produce_request(0, written))
    await stage.caught(held)
    await play.producer.end(written, committed=False)
    await play.settled()
    await between(play)
    stage.release(held)
    answer = await late
    code = None if answer is None else answer.responses[0].partition_responses[0].error_code
    stage.must_not(code == ErrorCode.NONE, "I18 nothing behind its end", "a late batch was taken")
    if version == 1:
        await play.producer.begin()
    await play.producer.end(await play.transact(0, 2), committed=True)
    await play.finish()


async def late_record(stage: Stage, version: int) -> None:
    """T16: the record of a decision is committed late; nobody hears of its epoch before."""
    play = Play(stage, version)
    await play.begin()
    written = await play.transact(0, 1)
    coordinator = play.coordinator
    held = [stage.hold(FETCH, sender=each, receiver=coordinator)
            for each in stage.others(coordinator)]  # fmt: skip
    for each in held:
        await stage.caught(each)
    ends = asyncio.create_task(play.producer.end(written, committed=True))
    await stage.sleep(0.5)
    for each in held:
        stage.release(each)
    await ends
    await play.finish()


async def whole_transaction(stage: Stage, version: int, *, commits: bool) -> None:
    """Three transactions one after the other, the second one with an offset."""
    play = Play(stage, version)
    await play.begin()
    await play.producer.end(await play.transact(0, 1, 2), committed=True)
    written = await play.transact(0, 1)
    await play.producer.commit_offset(written)
    # It is pending, and shows to nobody.
    await play.all.look_at_offset(written.group)
    stage.world.journal.note("transaction ends", "world")
    await play.producer.end(written, committed=commits)
    await play.producer.end(await play.transact(1, 2), committed=True)
    await play.finish()


_BETWEEN: Final[dict[str, Between]] = {
    "": nothing,
    ", coordinator changes": coordinator_changes,
    ", leader changes": leader_changes,
}
TRANSACTION_SCENARIOS: Final[dict[str, Script]] = (
    {
        f"{name}, version {version}{while_}": partial(script, version=version, between=between)
        for while_, between in _BETWEEN.items()
        for version in (1, 2)
        for name, script in {
            "late produce": partial(late_produce, opens=False),
            "late produce in the next": partial(late_produce, opens=True),
            "late commit": partial(late_end, commits=True),
            "late abort": partial(late_end, commits=False),
            "late marker": late_marker,
            "late verification": late_verification,
        }.items()
        if (name, version, between) != ("late marker", 1, nothing)
    }
    | {
        f"late record, version {version}": partial(late_record, version=version)
        for version in (1, 2)
    }
    | {
        f"whole transaction, version {version}, {end}": partial(
            whole_transaction, version=version, commits=end == "commit"
        )
        for version in (1, 2)
        for end in ("commit", "abort")
    }
)
assert PARTITIONS == 3, "each broker leads one"
