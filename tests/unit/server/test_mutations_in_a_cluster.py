"""A client's quota of mutations in a cluster: the client has it once, not once on each broker."""

from __future__ import annotations

from tests.unit.server.clusters import image, parts, simulate, start_all, submit, until
from tidelog.cluster.commands import AlterClientQuotas
from tidelog.cluster.image import Endpoint
from tidelog.cluster.peer import PeerConnection, PeerOptions
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.testing.simulation.machines import PORT, World

BROKERS = 3
ANYBODY = (("user", None),)


def test_a_client_that_asks_one_broker_after_the_other_has_its_quota_once() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, BROKERS)
        quota = AlterClientQuotas(ANYBODY, {"controller_mutation_rate": 1.0})
        await submit(machines[0], quota)
        await until(lambda: all(image(each).client_quotas for each in machines))
        assert sum(parts(each).membership.controller is not None for each in machines) == 1
        codes, waits = [], []
        for number, machine in enumerate(machines * 2):
            peer = PeerConnection(
                world.network, Endpoint("PLAINTEXT", machine.name, PORT), PeerOptions("tester")
            )
            topic = CreatableTopic(f"t{number}", num_partitions=20, replication_factor=1)
            asked = CreateTopicsRequest([topic], timeout_ms=10_000)
            answer = await peer.request("CreateTopics", asked, 30)
            codes.append(answer.topics[0].error_code)
            waits.append(answer.throttle_time_ms)
            if number < BROKERS:
                gone = DeleteTopicsRequest([DeleteTopicState("t0")], timeout_ms=10_000)
                other = PeerConnection(
                    world.network, Endpoint("PLAINTEXT", machine.name, PORT), PeerOptions("tester")
                )
                deleted = await other.request("DeleteTopics", gone, 30)
                assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
                other.close()
            peer.close()
        # 11 tokens were there, and 20 were taken: nobody may do more for 9 seconds.
        assert codes == [0] + [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 5
        assert waits[0] == 0 and all(8_000 < each <= 9_000 for each in waits[1:])
        assert set(image(machines[0]).topics) == {"t0"}

    simulate(main)
