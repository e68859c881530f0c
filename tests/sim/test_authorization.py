"""Access-control lists in a cluster: brokers work for clients that may, on whichever broker."""

from __future__ import annotations

import pytest

from tests.sim.three import Three, simulate
from tidelog.cluster.commands import Command, CreateAcls, DeleteAcls
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.security.acl import AclBinding, AclFilter, PatternType, Permission
from tidelog.security.authorizer import ANONYMOUS, CLUSTER, Operation, Resource, ResourceType

TOPIC = Resource(ResourceType.TOPIC, "t")


def allow(operation: Operation, resource: Resource) -> AclBinding:
    kind, name = resource
    literal, allowed = PatternType.LITERAL, Permission.ALLOW
    return AclBinding(kind, literal, name, ANONYMOUS.name, "*", operation, allowed)


async def submit(three: Three, broker_id: int, command: Command) -> None:
    """Have one broker hand a command to the controller, and wait until all have followed."""
    machine = three.machines[broker_id]
    assert machine.node is not None and machine.broker is not None
    await machine.node.start(machine.broker.parts.submitter.submit(command))

    def is_followed() -> bool:
        images = [each.broker.parts.metadata.image for each in three.machines if each.broker]
        return len({each.version for each in images}) == 1

    await three.until(is_followed)


def test_brokers_replicate_and_forward_for_a_client_for_as_long_as_it_may() -> None:
    async def script(three: Three) -> None:
        request = CreateTopicsRequest(topics=[CreatableTopic("t", 1, 3)])
        refused = (await three.ask(request)).topics[0]
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rules = [allow(Operation.CREATE, CLUSTER), allow(Operation.WRITE, TOPIC)]
        for broker_id in range(3):
            await submit(three, broker_id, CreateAcls(rules))
        await three.create({0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1]}, min_insync_replicas="3")
        await three.produce(9)
        assert all(sorted(three.state(each).isr) == [0, 1, 2] for each in range(3))
        await submit(three, 2, DeleteAcls([AclFilter(resource_type=ResourceType.TOPIC)]))
        with pytest.raises(KafkaError, match="AUTHORIZATION_FAILED"):
            await three.produce(1)

    simulate(script, {"authorizer.class.name": "acl"})
