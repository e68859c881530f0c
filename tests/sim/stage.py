"""A world for a script: three brokers, one partition, and what a script may do to them.

Chance finds most of what is wrong. What needs one message to be late for a whole epoch, or a crash
at one moment of a failover, is played on a stage: a script has the world come to that moment and
strikes there. The rest, and the order of everything within it, is still drawn from the seed, and
the same invariants look on. A script must be clean: only the product without a rule may break one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from tests.sim.ghost import Ghost, Replica, Violation
from tests.sim.observer import Observer
from tests.sim.workload import MAIN, produce_request
from tidelog.client.admin import alter_configs, delete_topic
from tidelog.client.aio import Client
from tidelog.client.connection import Call
from tidelog.client.metadata import CONTROLLER
from tidelog.client.operation import Operation, ask, refresh
from tidelog.client.settings import ClientSettings
from tidelog.cluster.image import PartitionState
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import ConfigOperation, ConfigResourceType, ListedOffset, TopicPartition
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.testing.simulation.machines import Machine, World
from tidelog.testing.simulation.network import Hold

# API keys.
FETCH: Final = 1
FOLLOW_METADATA: Final = 20_001
SUBMIT_COMMAND: Final = 20_002

PLACE: Final = TopicPartition(MAIN, 0)
_LOOK_S: Final = 0.01
_PATIENCE_S: Final = 60.0
_SETTINGS: Final = ClientSettings(
    connect_timeout_ms=2_000, request_timeout_ms=5_000, operation_timeout_ms=20_000
)

Script = Callable[["Stage"], Awaitable[None]]


class NotPlayedError(Exception):
    """The world did not come to where a script needs it."""


class Stage:
    """What scripts use: who is who, writing, holding messages, waiting for what they need."""

    def __init__(self, world: World, observer: Observer) -> None:
        self.world = world
        self.observer = observer
        self.client = Client(world.servers, _SETTINGS, world.client_host())
        self._value = 0
        # Records that were refused for certain.
        self.refused = 0
        self._writes: list[asyncio.Task[int]] = []

    # -- who is who -------------------------------------------------------------------------------

    @property
    def machines(self) -> list[Machine]:
        return list(self.world.machines.values())

    @property
    def controller(self) -> Machine:
        return self.world.machines[self.observer.image.controller_id]

    def others(self, *known: Machine) -> list[Machine]:
        return [each for each in self.machines if each not in known]

    @property
    def ghost(self) -> Ghost:
        found = self.observer.find(PLACE)
        assert found is not None, "the topic is there"
        return found

    @property
    def state(self) -> PartitionState:
        state = self.ghost.state
        assert state is not None
        return state

    def replica(self, machine: Machine) -> Replica | None:
        """The log of a broker as it is, or was when it was last up."""
        return self.ghost.replicas.get(machine.broker_id)

    def end(self, machine: Machine) -> int:
        replica = self.replica(machine)
        return -1 if replica is None else replica.end

    def leads(self, machine: Machine) -> bool:
        """Whether the store names it, and it knows."""
        replica, state = self.replica(machine), self.state
        is_named = state.leader == machine.broker_id
        return is_named and replica is not None and replica.epoch == state.leader_epoch

    def isr(self, *machines: Machine) -> bool:
        """Whether these are the in-sync replicas, by the store."""
        return set(self.state.isr) == {each.broker_id for each in machines}

    # -- beginning and end ------------------------------------------------------------------------

    async def begin(self) -> None:
        """Have every broker up."""
        for machine in self.machines:
            machine.boot_up()
        for machine in self.machines:
            await self.until(lambda at=machine: at.is_serving, f"{machine.name} serves")  # type: ignore[misc]

    async def create(self, *replicas: Machine, **configs: str) -> None:
        """The topic, with its replicas in this order: the first one leads."""
        ids = [each.broker_id for each in replicas]
        settings = {"min.insync.replicas": "2"}
        settings |= {name.replace("_", "."): value for name, value in configs.items()}
        topic = CreatableTopic(
            MAIN, -1, -1, [CreatableReplicaAssignment(0, ids)],
            [CreatableTopicConfig(*each) for each in settings.items()],
        )  # fmt: skip

        def asked() -> Operation[Any]:
            request = CreateTopicsRequest(topics=[topic])
            return (yield from ask(Call(CONTROLLER, "CreateTopics", request, 7)))

        response = await self.client.run(asked())
        assert response.topics[0].error_code == ErrorCode.NONE, response
        await self.until(
            lambda: self.observer.find(PLACE) is not None and self.leads(replicas[0]), "a leader"
        )
        # Where the brokers are; asked once, so that nothing later depends on whom it is asked.
        await self.client.run(refresh(self.client.cluster, [MAIN]))

    async def finish(self) -> None:
        """End what still waits."""
        for task in self._writes:
            task.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)
        await self.client.close()

    # -- clients ----------------------------------------------------------------------------------

    def send(self, machine: Machine, count: int, acks: int = -1) -> asyncio.Task[int]:
        """Write to one broker, whoever leads; how many it acknowledged."""
        task = asyncio.create_task(self._send(machine, count, acks))
        self._writes.append(task)
        return task

    async def write(self, machine: Machine, count: int, acks: int = -1) -> None:
        """Write to the leader; every record must be acknowledged."""
        done = await self.send(machine, count, acks)
        self.must(done == count, f"{machine.name} acknowledged {done} of {count} records")

    async def write_to_one(self, leader: Machine, follower: Machine, count: int) -> None:
        """Write what the leader and one follower have, and nobody has committed."""
        end = self.end(leader) + count
        await self.write(leader, count, acks=1)
        await self.until(lambda: self.end(follower) == end, f"{follower.name} has it")

    async def _send(self, machine: Machine, count: int, acks: int) -> int:
        done = 0
        for _ in range(count):
            self._value += 1
            answer = await self.ask(machine, "Produce", produce_request(PLACE, self._value, acks))
            code = None if answer is None else answer.responses[0].partition_responses[0].error_code
            self.refused += code == ErrorCode.NOT_ENOUGH_REPLICAS
            if answer is None or code:
                continue
            done += 1
            offset = answer.responses[0].partition_responses[0].base_offset
            if acks == -1:
                self.observer.acknowledged(PLACE, offset, self._value)
            else:
                self.observer.acknowledged_by_one(PLACE, offset, machine.broker_id)
        return done

    async def offset_of(self, machine: Machine, which: ListedOffset) -> int:
        """An end of the log, as a client is told; -1 where it is not told."""
        asked = ListOffsetsPartition(0, current_leader_epoch=-1, timestamp=which)
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(MAIN, [asked])])
        answer = await self.ask(machine, "ListOffsets", request, 7)
        told = None if answer is None else answer.topics[0].partitions[0]
        return -1 if told is None or told.error_code else int(told.offset)

    async def fetch(self, machine: Machine, topic_id: UUID) -> int:
        """Read the partition of a topic id from its start; how many bytes are served."""
        topic = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0)])
        request = FetchRequest(max_wait_ms=0, topics=[topic])
        answer = await self.ask(machine, "Fetch", request, 13)
        parts = [] if answer is None else [p for t in answer.responses for p in t.partitions]
        return sum(len(each.records or b"") for each in parts)

    async def set_config(self, name: str, value: str) -> None:
        """Set a setting of the topic: a change of the metadata, and of nothing else."""
        changes = [(name, ConfigOperation.SET, value)]
        topic = ConfigResourceType.TOPIC
        await self.client.run(alter_configs(self.client.cluster, topic, MAIN, changes))

    async def delete_before(self, machine: Machine, offset: int) -> bool:
        """Delete records; whether the leader says that it is done."""
        topic = DeleteRecordsTopic(MAIN, [DeleteRecordsPartition(0, offset)])
        answer = await self.ask(machine, "DeleteRecords", DeleteRecordsRequest([topic], 1_000), 2)
        return answer is not None and not answer.topics[0].partitions[0].error_code

    async def delete(self) -> None:
        """Delete the topic."""
        await self.client.run(delete_topic(self.client.cluster, MAIN))

    async def ask(
        self, machine: Machine, api: str, request: object, version: int = 9
    ) -> Any | None:
        """What a broker answers; None where it does not."""
        outcome = await self.client.network.request(Call(machine.broker_id, api, request, version))
        return None if isinstance(outcome, TidelogError) else outcome

    # -- what goes wrong --------------------------------------------------------------------------

    def hold(
        self,
        api: int,
        *,
        sender: Machine | None = None,
        receiver: Machine | None = None,
        answer: bool = False,
        passing: int = 0,
    ) -> Hold:
        """Keep back the next message of a kind, and what follows on its connection."""
        return self.world.network.hold(
            Hold(
                api,
                answer,
                sender=None if sender is None else sender.name,
                receiver=None if receiver is None else receiver.name,
                passing=passing,
            )
        )

    def release(self, hold: Hold) -> None:
        self.world.network.release(hold)

    async def caught(self, hold: Hold) -> None:
        await self.until(lambda: hold.caught > 0, f"a message of api {hold.api} is held")

    def part(self, one: Machine, *others: Machine) -> None:
        """Nothing gets from one to the others, nor back."""
        for other in others:
            self.world.network.cut(one.name, other.name)
            self.world.network.cut(other.name, one.name)

    def join(self, one: Machine, *others: Machine) -> None:
        for other in others:
            self.world.network.heal(one.name, other.name)
            self.world.network.heal(other.name, one.name)

    def expire(self, machine: Machine) -> None:
        """The session of a broker ends though the broker is well; it will enter again."""
        assert machine.session is not None
        machine.session.expire()

    async def gone(self, machine: Machine) -> None:
        """The controller has seen that a broker is gone, or is here in another life."""
        epoch = self.observer.image.brokers[machine.broker_id].epoch

        def has_seen() -> bool:
            known = self.observer.image.brokers.get(machine.broker_id)
            return known is None or known.epoch != epoch

        await self.until(has_seen, f"{machine.name} is given up")

    # -- waiting ----------------------------------------------------------------------------------

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for what the script needs; where it does not come, the script does not fit."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _PATIENCE_S
        while not holds():
            self.observer.check()
            self.must(loop.time() < end, f"after {_PATIENCE_S:.0f} s still not: {what}")
            await asyncio.sleep(_LOOK_S)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def must(self, holds: bool, what: str) -> None:
        if not holds:
            raise NotPlayedError(what)

    def must_not(self, holds: bool, invariant: str, what: str) -> None:
        """What the script itself saw breaks an invariant."""
        if holds:
            raise Violation(invariant, what)
