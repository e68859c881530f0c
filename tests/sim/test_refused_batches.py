"""A leader with too few followers refuses, and what is behind a refused batch hears the same."""

from __future__ import annotations

from tests.e2e.produce_requests import batch, produce
from tests.sim.three import Three, simulate
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest


def test_batches_behind_a_refused_one_hear_the_same_retriable_error() -> None:
    """Anything else makes a producer believe that records were lost, and send them twice."""

    async def script(three: Three) -> None:
        await three.create({0: [0, 1]}, min_insync_replicas="2")
        three.machines[1].kill()
        await three.until(lambda: three.state().isr == (0,))
        given = await three.ask(InitProducerIdRequest(transactional_id=None))
        codes = []
        for sequence in range(3):
            records = batch(
                [b"x"], producer_id=given.producer_id, producer_epoch=0, base_sequence=sequence
            )
            request = produce("t", records, acks=-1 if sequence == 0 else 1)
            response = await three.ask(request, node=0, version=9)
            codes.append(response.responses[0].partition_responses[0].error_code)
        assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
        broker = three.machines[0].broker
        assert broker is not None
        assert broker.parts.replicas.find("t", 0).log.log_end_offset == 0

    simulate(script)
