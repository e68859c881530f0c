"""Three real brokers on simulated machines, administered over the wire as Kafka's tools do it."""

from __future__ import annotations

from tests.sim.three import Three, simulate
from tidelog.errors import ErrorCode
from tidelog.model import ConfigResourceType
from tidelog.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.protocol.messages.alter_partition import AlterPartitionRequest
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from tidelog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tidelog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tidelog.testing.simulation.machines import Machine


def files_of(machine: Machine) -> list[str]:
    broker = machine.broker
    assert broker is not None
    data_dir = broker.parts.data_dir
    return data_dir.context.disk.list_dir(data_dir.path)


def reassignment(replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(0, replicas)
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", [partition])])


def test_a_partition_is_moved_with_its_records_and_shown_while_it_moves() -> None:
    async def script(three: Three) -> None:
        await three.create({0: [0]})
        await three.produce(30)
        refused = await three.ask(reassignment([7]))
        (partition,) = refused.responses[0].partitions
        assert partition.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        three.machines[2].pause()
        response = await three.ask(reassignment([1, 2]))
        assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
        listed = await three.ask(ListPartitionReassignmentsRequest())
        (moving,) = listed.topics[0].partitions
        assert (moving.adding_replicas, moving.removing_replicas) == ([1, 2], [0])
        three.machines[2].resume()
        await three.until(lambda: three.state().replicas == (1, 2))
        state = three.state()
        assert (state.leader, set(state.isr)) == (1, {1, 2})
        listed = await three.ask(ListPartitionReassignmentsRequest())
        assert listed.topics == []
        broker = three.machines[1].broker
        assert broker is not None
        assert broker.parts.replicas.find("t", 0).log.log_end_offset == 30
        # Its files go from the old broker, and come again with it.
        first = three.machines[0]
        await three.until(lambda: not any("t-0" in path for path in files_of(first)))
        await three.ask(reassignment([0, 1]))
        await three.until(lambda: three.state().replicas == (0, 1))
        assert any("t-0" in path for path in files_of(first))
        none = await three.ask(reassignment(None))
        code = none.responses[0].partitions[0].error_code
        assert code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    simulate(script)


def test_a_replica_comes_again_to_a_broker_that_was_killed_when_it_had_dropped_it() -> None:
    """Its list of what must be there does not ask for a directory that a move took away."""

    async def script(three: Three) -> None:
        await three.create({0: [2, 1]})
        await three.produce(30)
        await three.ask(reassignment([1, 0]))
        await three.until(lambda: three.state().replicas == (1, 0))
        third = three.machines[2]
        broker = third.broker
        assert broker is not None
        disk, path = third.disk, broker.parts.data_dir.path
        await three.until(lambda: "t-0" not in disk.list_dir(path))
        third.kill()
        response = await three.ask(reassignment([2, 1]))
        assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
        await third.start()
        await three.until(lambda: set(three.state().isr) == {2, 1})

    simulate(script)


def test_leaders_return_and_brokers_that_are_away_are_shown() -> None:
    async def script(three: Three) -> None:
        await three.create({0: [2, 1, 0], 1: [0, 1, 2]})
        three.machines[2].kill()
        await three.until(lambda: three.state().leader == 1)
        described = await three.ask(DescribeClusterRequest(include_fenced_brokers=True))
        shown = {each.broker_id: each.is_fenced for each in described.brokers}
        assert shown == {0: False, 1: False, 2: True}
        elect = ElectLeadersRequest(topic_partitions=[TopicPartitions("t", [0, 9])])
        response = await three.ask(elect)
        assert [
            each.error_code for each in response.replica_election_results[0].partition_result
        ] == [
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        await three.machines[2].start()
        await three.until(lambda: len(three.state().isr) == 3)
        everywhere = ElectLeadersRequest(topic_partitions=None)
        response = await three.ask(everywhere)
        (result,) = response.replica_election_results
        assert [(each.partition_id, each.error_code) for each in result.partition_result] == [
            (0, 0)
        ]
        await three.until(lambda: three.state().leader == 2)
        response = await three.ask(everywhere)
        assert not any(each.partition_result for each in response.replica_election_results)

    simulate(script)


def test_what_is_refused_is_refused_in_words() -> None:
    async def script(three: Three) -> None:
        await three.create({0: [0, 1], 1: [1, 2], 2: [2, 0]})
        running = await three.ask(UnregisterBrokerRequest(2))
        assert running.error_code == ErrorCode.INVALID_REQUEST
        assert "Stop it first" in running.error_message
        unknown = await three.ask(UnregisterBrokerRequest(9))
        assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        levels = [FeatureUpdateKey("metadata.version", 30), FeatureUpdateKey("metadata.version", 7)]
        for update, code in zip(
            levels, (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION), strict=True
        ):
            features = await three.ask(UpdateFeaturesRequest(feature_updates=[update]))
            assert features.error_code == code
        elsewhere = AlterReplicaLogDir("/elsewhere", [AlterReplicaLogDirTopic("t", [0])])
        moved = await three.ask(AlterReplicaLogDirsRequest([elsewhere]))
        assert moved.results[0].partitions[0].error_code == ErrorCode.LOG_DIR_NOT_FOUND
        # What brokers ask of their controller, a client may not.
        epoch = three.image.brokers[0].epoch
        for request in (AlterPartitionRequest(0, epoch), AllocateProducerIdsRequest(0, epoch)):
            refused = await three.ask(request)
            assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    simulate(script)


def test_the_minimum_of_in_sync_replicas_is_shown_as_it_is() -> None:
    async def script(three: Three) -> None:
        await three.create({0: [0, 1, 2]})
        resource = DescribeConfigsResource(ConfigResourceType.TOPIC, "t", ["min.insync.replicas"])
        described = await three.ask(DescribeConfigsRequest(resources=[resource]))
        assert [each.value for each in described.results[0].configs] == ["2"]

    simulate(script)


def test_topics_are_described_page_by_page() -> None:
    async def script(three: Three) -> None:
        await three.create({0: [0, 1], 1: [1, 2], 2: [2, 0]})
        first = await three.ask(DescribeTopicPartitionsRequest(response_partition_limit=2))
        assert [each.partition_index for each in first.topics[0].partitions] == [0, 1]
        assert first.topics[0].partitions[0].eligible_leader_replicas == []
        assert first.next_cursor == Cursor("t", 2)
        rest = await three.ask(DescribeTopicPartitionsRequest(cursor=first.next_cursor))
        assert [each.partition_index for each in rest.topics[0].partitions] == [2]
        assert rest.next_cursor is None

    simulate(script)
