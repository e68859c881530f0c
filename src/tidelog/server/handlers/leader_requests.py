"""AlterPartition (56, versions 3 to 3) and AllocateProducerIds (67, versions 0 to 0).

Behaviour: only for brokers, as Kafka's brokers ask their controller, and answered by the broker
that is the controller; others answer NOT_CONTROLLER. If a proposal completes a reassignment and
changes the leader epoch, the answer is NEW_LEADER_ELECTED and the change was made, as in Kafka.
Version 2 of AlterPartition, without the members' broker epochs, is not supported: the broker must
know which life of a member it is.
"""

from __future__ import annotations

from collections.abc import Generator
from uuid import UUID

from tidelog.cluster.commands import (
    AllocateProducerIds,
    AlterPartition,
    Answer,
    Member,
    PartitionDecided,
    ProducerIdBlock,
    Proposal,
)
from tidelog.cluster.controller_link import COMMAND_TIMEOUT_S, decide_here
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    DecidedPartition,
    DecidedTopic,
    ProposedPartition,
)
from tidelog.server.handlers.asked import by_topic
from tidelog.server.handlers.controlling import own_controller
from tidelog.server.routes import served
from tidelog.server.tools import ControllerContext

_OF_THE_CALLER = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


@served(waits=True)
async def alter_partition(
    request: AlterPartitionRequest, context: ControllerContext
) -> AlterPartitionResponse:
    try:
        controller = own_controller(context)
        commands = await context.complete(_commands(request))
        outcomes = (await decide_here(controller, commands, COMMAND_TIMEOUT_S)).outcomes
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
    decided: dict[UUID, DecidedTopic] = {}
    pace = context.pace()
    for command, outcome in zip(commands, outcomes, strict=True):
        if isinstance(outcome, KafkaError) and outcome.code in _OF_THE_CALLER:
            return AlterPartitionResponse(error_code=outcome.code)
        topic = decided.setdefault(command.topic_id, DecidedTopic(command.topic_id))
        topic.partitions.append(_decided(command, outcome))
        await pace.step()
    return AlterPartitionResponse(topics=list(decided.values()))


def _commands(request: AlterPartitionRequest) -> Generator[int, None, list[AlterPartition]]:
    commands = []
    topics = yield from by_topic(request.topics, ("topic_id",), "partition_index")
    for topic, partitions in topics:
        for proposed in partitions.values():
            commands.append(_command(request, topic.topic_id, proposed))
            yield 1 + len(proposed.new_isr_with_epochs)
    return commands


def _command(
    request: AlterPartitionRequest, topic_id: UUID, proposed: ProposedPartition
) -> AlterPartition:
    members = tuple(
        Member(each.broker_id, each.broker_epoch) for each in proposed.new_isr_with_epochs
    )
    return AlterPartition(
        request.broker_id,
        request.broker_epoch,
        topic_id,
        proposed.partition_index,
        Proposal(proposed.leader_epoch, proposed.partition_epoch, members),
    )


def _decided(command: AlterPartition, outcome: Answer | KafkaError) -> DecidedPartition:
    if isinstance(outcome, KafkaError):
        return DecidedPartition(command.partition, outcome.code)
    assert isinstance(outcome, PartitionDecided)
    state = outcome.state
    if state.leader_epoch != command.proposal.leader_epoch:
        return DecidedPartition(command.partition, ErrorCode.NEW_LEADER_ELECTED)
    return DecidedPartition(
        partition_index=state.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
    )


@served(waits=True)
async def allocate_producer_ids(
    request: AllocateProducerIdsRequest, context: ControllerContext
) -> AllocateProducerIdsResponse:
    command = AllocateProducerIds(request.broker_id, request.broker_epoch)
    try:
        controller = own_controller(context)
        (block,) = (await decide_here(controller, [command], COMMAND_TIMEOUT_S)).outcomes
    except KafkaError as error:
        block = error
    if isinstance(block, KafkaError):
        return AllocateProducerIdsResponse(error_code=block.code)
    assert isinstance(block, ProducerIdBlock)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size)
