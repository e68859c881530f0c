"""Tokens: what was verified holds until a marker, or another leader, says that it need not."""

from __future__ import annotations

import pytest

from tests.unit.storage.helpers import NOW_MS, World, append, idempotent, marker, transactional
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.batches import CONTROL_ABORT, CONTROL_COMMIT, BatchHeader
from tidelog.storage.log import Log
from tidelog.storage.producers import ProducerStates
from tidelog.storage.verification import COORDINATOR, Origin, Verification

PRODUCER = 7
V2 = Origin(from_client=False, transaction_version=2)


def header(epoch: int = 0, sequence: int = 0) -> BatchHeader:
    return transactional(sequence, producer_id=PRODUCER, epoch=epoch).header


def begun(log: Log, epoch: int = 0) -> Verification:
    token = log.producers.begin_verification(header(epoch))
    assert token is not None
    return token


def refusal(producers: ProducerStates, batch: BatchHeader, token: Verification | None) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        producers.check_verified(batch, token)
    return caught.value.code


def end(log: Log, epoch: int, origin: Origin, kind: int = CONTROL_ABORT) -> None:
    log.append(marker(kind, producer_id=PRODUCER, epoch=epoch), 0, NOW_MS, origin)


def test_t10_a_batch_that_opens_a_transaction_needs_to_be_verified() -> None:
    log = World().open()
    assert refusal(log.producers, header(), None) is ErrorCode.INVALID_TXN_STATE
    token = begun(log)
    log.producers.check_verified(header(), token)
    append(log, transactional(0, producer_id=PRODUCER))
    # It is open now: what follows needs nothing.
    assert log.producers.begin_verification(header(sequence=1)) is None
    log.producers.check_verified(header(sequence=1), None)


@pytest.mark.parametrize("kind", [CONTROL_COMMIT, CONTROL_ABORT])
def test_t10_a_marker_that_overtakes_a_verification_makes_it_void(kind: int) -> None:
    log = World().open()
    token = begun(log)
    end(log, 0, COORDINATOR, kind)
    assert refusal(log.producers, header(), token) is ErrorCode.INVALID_TXN_STATE
    # Who asks anew gets another token.
    log.producers.check_verified(header(), begun(log))


def test_t10_in_version_2_the_marker_has_the_epoch_behind_and_fences() -> None:
    log = World().open()
    token = begun(log)
    end(log, 1, V2)
    assert token.refusal is ErrorCode.INVALID_TXN_STATE
    with pytest.raises(KafkaError) as caught:
        append(log, transactional(0, producer_id=PRODUCER))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_in_version_2_the_end_of_the_transaction_before_voids_nothing_of_the_next() -> None:
    """The next one is verified as soon as the coordinator has heard of all markers."""
    log = World().open()
    append(log, transactional(0, producer_id=PRODUCER))
    token = begun(log, epoch=1)
    end(log, 1, V2, CONTROL_COMMIT)
    log.producers.check_verified(header(epoch=1), token)


def test_a_marker_of_another_producer_voids_nothing() -> None:
    log = World().open()
    token = begun(log)
    log.append(marker(CONTROL_ABORT, producer_id=PRODUCER + 1), 0, NOW_MS, COORDINATOR)
    log.producers.check_verified(header(), token)


def test_a_marker_that_is_repeated_voids_as_the_first_did() -> None:
    log = World().open()
    end(log, 0, COORDINATOR)
    token = begun(log)
    assert log.producers.was_ended_by(PRODUCER, 0, 1)
    log.producers.void(PRODUCER, 0, 1)
    assert refusal(log.producers, header(), token) is ErrorCode.INVALID_TXN_STATE


def test_another_leadership_has_everything_verified_again() -> None:
    log = World().open()
    token = begun(log)
    log.producers.void_all()
    assert refusal(log.producers, header(), token) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_token_of_another_epoch_does_not_count() -> None:
    log = World().open()
    token = begun(log, epoch=3)
    assert refusal(log.producers, header(epoch=4), token) is ErrorCode.INVALID_TXN_STATE


def test_requests_that_verify_at_the_same_time_share_a_token_and_leave_nothing_behind() -> None:
    log = World().open()
    first = begun(log)
    assert begun(log) is first
    del first
    assert not log.producers._verifications


def test_t4_batches_behind_one_that_was_not_verified_get_the_same_error() -> None:
    log = World().open()
    log.producers.refuse(header(), ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(KafkaError) as caught:
        log.producers.begin_verification(header(sequence=1))
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert log.producers.begin_verification(header()) is not None


def test_t11_in_version_2_a_transaction_begins_with_sequence_0() -> None:
    """A batch that was lost before it must not be missing."""
    log = World().open()
    token = begun(log)
    token.begins_epoch = True
    late = header(sequence=1)
    assert refusal(log.producers, late, token) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_t11_a_late_batch_does_not_get_into_the_next_transaction() -> None:
    log = World().open()
    append(log, transactional(0, producer_id=PRODUCER))
    end(log, 1, V2)
    append(log, transactional(0, producer_id=PRODUCER, epoch=1))
    with pytest.raises(KafkaError) as caught:
        append(log, transactional(1, producer_id=PRODUCER))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_batches_of_coordinators_are_no_repetitions_of_each_other() -> None:
    log = World().open()
    for _ in range(2):
        item = transactional(0, producer_id=PRODUCER)
        item.header.base_sequence = -1
        assert not log.append(item, 0, NOW_MS, COORDINATOR).duplicate


def test_a_marker_is_known_again_until_the_next_transaction_begins() -> None:
    log = World().open()
    known = log.producers.was_ended_by
    append(log, idempotent(0, producer_id=PRODUCER))
    assert not known(PRODUCER, 0, 1)
    end(log, 1, V2)
    assert known(PRODUCER, 1, 1)
    assert not known(PRODUCER, 1, 2)
    assert not known(PRODUCER, 2, 1)
    append(log, transactional(0, producer_id=PRODUCER, epoch=1))
    assert not known(PRODUCER, 1, 1)
