"""What a transactional producer asks for, and what it says when it cannot go on."""

from __future__ import annotations

import pytest

from tests.unit.client.transaction_model import OFFSETS
from tests.unit.client.transaction_shell import SETTINGS, VERSIONS, Shell
from tidelog.client.batching import Identity
from tidelog.client.connection import Call
from tidelog.client.faults import NetworkError, UnsupportedApiError
from tidelog.client.operation import Pause
from tidelog.client.transaction_faults import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionStateError,
    TransactionUncertainError,
)
from tidelog.client.transactional import Phase
from tidelog.client.transactions import (
    GroupMetadata,
    PreparedTransaction,
    end_transaction,
    init_transactional_id,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

LOST = NetworkError("b", "reset")


def started(level: int) -> Shell:
    shell = Shell(level)
    shell.run(shell.core.init())
    shell.core.begin()
    return shell


@VERSIONS
def test_a_commit_asks_for_what_the_version_needs(level: int) -> None:
    shell = started(level)
    shell.network.asked.clear()
    for partition in (0, 1, 0):
        shell.send(b"v", partition)
    shell.offsets(7)
    shell.commit()
    asked = {
        1: ["AddOffsetsToTxn", "TxnOffsetCommit", "AddPartitionsToTxn", "Produce", "Produce"],
        2: ["TxnOffsetCommit", "Produce", "Produce"],
    }[level]
    without_looking = [each for each in shell.network.asked if each != "FindCoordinator"]
    assert without_looking == [*asked, "EndTxn"]
    assert shell.model.stored == {0: [b"v", b"v"], 1: [b"v"], OFFSETS: [b"7"]}
    assert shell.core.identity == Identity(0, level - 1)
    # Nothing is lost, so nothing more is asked for before the next.
    shell.network.asked.clear()
    shell.core.begin()
    shell.send(b"w")
    shell.commit()
    assert shell.network.asked == (["AddPartitionsToTxn"] if level == 1 else []) + [
        "Produce",
        "EndTxn",
    ]


@VERSIONS
def test_an_empty_transaction_asks_for_nothing(level: int) -> None:
    shell = started(level)
    shell.network.asked.clear()
    shell.commit()
    shell.core.begin()
    shell.abort()
    shell.core.begin()
    assert shell.run(shell.core.settle()) is None
    assert shell.network.asked == []


@VERSIONS
def test_another_process_goes_on_as_the_producer_until_somebody_else_comes(level: int) -> None:
    shell = Shell(level)
    first = shell.run(init_transactional_id(shell.cluster, SETTINGS))
    shell.run(shell.core.resume(first))
    shell.core.begin()
    shell.send(b"v")
    shell.commit()
    assert shell.model.stored == {0: [b"v"]}
    shell.core = shell.new_core()
    stale = shell.run(init_transactional_id(shell.cluster, SETTINGS))
    shell.run(init_transactional_id(shell.cluster, SETTINGS))
    shell.run(shell.core.resume(stale))
    shell.core.begin()
    shell.send(b"late")
    with pytest.raises(ProducerFencedError):
        shell.commit()
    assert shell.model.stored == {0: [b"v"]}
    with pytest.raises(ProducerFencedError):
        shell.run(init_transactional_id(shell.cluster, SETTINGS, stale))


@VERSIONS
def test_methods_out_of_order_say_what_is_due(level: int) -> None:
    shell = Shell(level)
    for call, due in (
        (shell.core.begin, "before init"),
        (lambda: shell.send(b"v"), "before init"),
        (lambda: shell.run(shell.core.commit()), "before init"),
    ):
        with pytest.raises(TransactionStateError, match=due):
            call()
    shell.run(shell.core.init())
    with pytest.raises(TransactionStateError, match="begin one"):
        shell.send(b"v")
    shell.core.begin()
    with pytest.raises(TransactionStateError, match="commit or abort"):
        shell.core.begin()
    with pytest.raises(TransactionStateError, match="commit or abort"):
        shell.run(shell.core.init())
    shell.send(b"v")
    shell.flush()
    assert shell.run(shell.core.settle()) == PreparedTransaction("x", 0, 0)
    with pytest.raises(TransactionStateError, match="is prepared"):
        shell.send(b"more")
    shell.run(shell.core.commit())
    assert shell.model.stored == {0: [b"v"]}


@VERSIONS
def test_a_commit_without_answer_is_uncertain_until_it_is_asked_for_again(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    shell.network.scripted["EndTxn"] = [LOST] * 100
    with pytest.raises(TransactionUncertainError, match="Ask for the commit again"):
        shell.commit()
    for call in (shell.core.begin, shell.core.give_up, lambda: shell.send(b"w")):
        with pytest.raises(TransactionStateError, match="commit again"):
            call()
    shell.network.scripted.clear()
    shell.clock.now -= 60
    shell.run(shell.core.commit())
    assert shell.model.stored == {0: [b"v"]}


def test_in_version_1_a_producer_takes_a_new_epoch_after_a_request_without_answer() -> None:
    """Else the late copy of an end could end the next transaction."""
    shell = started(1)
    shell.send(b"v")
    shell.flush()
    late = shell.core._transaction
    shell.network.scripted["EndTxn"] = [LOST]
    shell.commit()
    shell.core.begin()
    shell.send(b"w")
    shell.flush()
    assert shell.core.identity == Identity(0, 1)
    assert shell.model.end(late.producer_id, late.producer_epoch, True, 1)[0] == 90
    shell.abort()
    assert shell.model.stored == {0: [b"v"]}


def test_two_tasks_that_need_a_new_epoch_take_the_same_one() -> None:
    """Both of them asked, and the later answer aborted what the earlier one had begun."""
    shell = started(1)
    shell.send(b"v")
    shell.flush()
    shell.network.scripted["EndTxn"] = [LOST]
    shell.commit()
    shell.core.begin()
    shell.send(b"w")
    sender = shell.core.prepare()
    asked = next(sender)
    offsets = shell.core.send_offsets({TopicPartition("orders", 0): 7}, GroupMetadata("g", "m", 3))
    waits = next(offsets)
    assert isinstance(asked, list) and asked[0].api == "InitProducerId"
    assert isinstance(waits, Pause)
    sent = sender.send([shell.network(asked[0])])
    assert isinstance(sent, list) and sent[0].api == "AddPartitionsToTxn"
    added = offsets.send(None)
    assert isinstance(added, list) and added[0].api in ("AddOffsetsToTxn", "FindCoordinator")
    assert shell.core.identity == Identity(0, 1)


@VERSIONS
def test_t11_a_batch_that_was_given_up_does_not_get_into_the_next_transaction(level: int) -> None:
    shell = started(level)
    shell.send(b"gone")
    shell.run(shell.core.prepare())
    shell.core.flushing = True
    [produce] = shell.core.calls(shell.clock.now)
    shell.core.finish(produce, LOST, shell.clock.now)
    shell.abort()
    shell.core.begin()
    shell.send(b"next")
    shell.run(shell.core.prepare())
    shell.network.serve(produce.call)
    shell.commit()
    assert shell.model.stored == {0: [b"next"]}


@VERSIONS
def test_offsets_that_come_late_do_not_get_into_the_next_transaction(level: int) -> None:
    shell = started(level)
    held: list[Call] = []
    serve = shell.network.serve

    def hold(call: Call) -> object:
        if call.api == "TxnOffsetCommit" and not held:
            held.append(call)
            return LOST
        return serve(call)

    shell.network.serve = hold  # type: ignore[method-assign]
    shell.offsets(7)
    shell.commit()
    shell.core.begin()
    shell.offsets(9)
    hold(held[0])
    shell.commit()
    assert shell.model.stored == {OFFSETS: [b"7", b"9"]}


@VERSIONS
def test_a_producer_that_is_just_being_replaced_has_not_timed_out(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    shell.model.fence()
    shell.model.settle()
    with pytest.raises(ProducerFencedError):
        shell.commit()


@VERSIONS
def test_an_abort_that_nobody_can_explain_is_followed_by_a_new_epoch(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    shell.network.scripted["EndTxn"] = [EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)]
    shell.network.scripted["DescribeTransactions"] = [UnsupportedApiError("too old")]
    shell.model.state = "Empty"
    shell.model.open.clear()
    shell.abort()
    before = shell.core.identity
    shell.core.begin()
    shell.send(b"w")
    shell.flush()
    assert shell.core.identity != before
    shell.commit()
    assert shell.model.stored == {0: [b"w"]}


@VERSIONS
def test_a_producer_that_was_replaced_is_told_so_whatever_it_does(level: int) -> None:
    for act in (
        lambda shell: shell.commit(),
        lambda shell: shell.abort(),
        lambda shell: shell.offsets(3),
    ):
        shell = started(level)
        shell.send(b"v")
        shell.flush()
        shell.run(init_transactional_id(shell.cluster, SETTINGS))
        with pytest.raises(ProducerFencedError) as caught:
            act(shell)
        assert caught.value.committed is False
        assert shell.core.phase is Phase.FENCED
        with pytest.raises(ProducerFencedError):
            shell.core.begin()
    shell = started(level)
    shell.run(init_transactional_id(shell.cluster, SETTINGS))
    delivery = shell.send(b"w")
    shell.flush()
    assert delivery.error is not None
    with pytest.raises(ProducerFencedError):
        shell.commit()


@VERSIONS
def test_a_fenced_commit_without_answer_cannot_be_told(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    shell.network.scripted["EndTxn"] = [LOST] * 100
    with pytest.raises(TransactionUncertainError):
        shell.commit()
    shell.network.scripted.clear()
    shell.clock.now -= 60
    shell.run(init_transactional_id(shell.cluster, SETTINGS))
    with pytest.raises(ProducerFencedError, match="cannot be told") as caught:
        shell.run(shell.core.commit())
    assert caught.value.committed is None


@VERSIONS
def test_a_transaction_that_timed_out_is_told_from_a_fenced_one(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    shell.clock.now += 61
    with pytest.raises(TransactionAbortedError, match="time-out of 60000 ms"):
        shell.commit()
    shell.abort()
    shell.core.begin()
    shell.send(b"w")
    shell.commit()
    assert shell.model.stored == {0: [b"w"]}
    # While it is still being sent.
    shell.core.begin()
    shell.send(b"x")
    shell.flush()
    shell.clock.now += 61
    shell.send(b"y")
    with pytest.raises(TransactionAbortedError):
        shell.commit()
    shell.abort()
    # And where somebody came after the time-out, it is that which counts.
    shell.core.begin()
    shell.send(b"z")
    shell.flush()
    shell.clock.now += 61
    shell.run(init_transactional_id(shell.cluster, SETTINGS))
    with pytest.raises(ProducerFencedError):
        shell.commit()
    assert shell.model.stored == {0: [b"w"]}


@VERSIONS
def test_who_came_between_the_time_out_and_the_next_transaction_is_not_fenced(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    shell.clock.now += 61
    with pytest.raises(TransactionAbortedError):
        shell.commit()
    shell.abort()
    heir = shell.run(init_transactional_id(shell.cluster, SETTINGS))
    shell.core.begin()
    shell.send(b"w")
    shell.flush()
    with pytest.raises(ProducerFencedError):
        shell.commit()
    assert Identity(shell.model.producer_id, shell.model.epoch) == heir


@VERSIONS
def test_an_id_that_the_coordinator_has_forgotten_begins_anew(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    shell.network.scripted["EndTxn"] = [
        EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    ]
    shell.network.scripted["DescribeTransactions"] = [
        KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    ]
    with pytest.raises(TransactionAbortedError, match="does not know the id"):
        shell.commit()
    shell.abort()
    shell.network.asked.clear()
    shell.model.settle()
    shell.core.begin()
    shell.send(b"w")
    shell.flush()
    assert shell.network.asked[0] == "InitProducerId"


@VERSIONS
def test_a_code_that_only_an_administrator_can_help_with_is_raised_as_it_is(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    refused = EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    shell.network.scripted["EndTxn"] = [refused, refused]
    with pytest.raises(TransactionAbortableError, match="Not authorized"):
        shell.commit()
    with pytest.raises(KafkaError, match="Not authorized"):
        shell.abort()
    shell.abort()
    assert shell.model.stored == {}


@VERSIONS
def test_a_lost_member_fails_the_transaction_and_names_the_reason(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    shell.network.scripted["TxnOffsetCommit"] = [KafkaError(ErrorCode.ILLEGAL_GENERATION)]
    with pytest.raises(TransactionAbortableError, match="generation") as caught:
        shell.offsets(3)
    assert isinstance(caught.value.__cause__, KafkaError)
    with pytest.raises(TransactionAbortableError):
        shell.commit()
    shell.abort()
    assert shell.model.stored == {}


@VERSIONS
def test_an_unknown_error_of_the_coordinator_leaves_a_commit_uncertain(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    served = shell.network.serve(
        Call(
            1, "EndTxn", EndTxnRequest("x", 0, 0, True), 32767 if level == 2 else 4, 5 * (level - 1)
        )
    )
    assert served.error_code == 0
    shell.network.scripted["EndTxn"] = [EndTxnResponse(error_code=-1)]
    with pytest.raises(TransactionUncertainError):
        shell.commit()
    shell.run(shell.core.commit())
    assert shell.model.stored == {0: [b"v"]}


@VERSIONS
def test_a_producer_whose_transaction_another_has_committed_does_not_say_aborted(
    level: int,
) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    prepared = shell.run(shell.core.settle())
    shell.run(end_transaction(shell.cluster, prepared, commit=True))
    shell.model.settle()
    with pytest.raises(ProducerFencedError) as caught:
        shell.abort()
    assert caught.value.committed is None
    assert shell.model.stored == {0: [b"v"]}


@VERSIONS
def test_what_was_sent_and_not_delivered_is_dropped_by_an_abort(level: int) -> None:
    shell = started(level)
    deliveries = [shell.send(b"v", partition) for partition in (0, 1)]
    shell.abort()
    assert all(isinstance(each.error, TransactionAbortableError) for each in deliveries)
    assert "Produce" not in shell.network.asked
    assert "EndTxn" not in shell.network.asked
    assert shell.core.buffered_bytes == 0


@VERSIONS
def test_another_process_ends_what_was_prepared_once(level: int) -> None:
    shell = started(level)
    shell.send(b"v")
    shell.flush()
    prepared = shell.run(shell.core.settle())
    shell.network.scripted["EndTxn"] = [LOST, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    for _ in range(2):
        shell.run(end_transaction(shell.cluster, prepared, commit=True))
        shell.model.settle()
    assert shell.model.ended == [True]
    with pytest.raises(TransactionStateError if level == 2 else TransactionError):
        shell.run(end_transaction(shell.cluster, prepared, commit=False))
    shell.network.scripted["EndTxn"] = [LOST] * 100
    with pytest.raises(TransactionUncertainError):
        shell.run(end_transaction(shell.cluster, prepared, commit=True))
    shell.network.scripted.clear()
    shell.run(init_transactional_id(shell.cluster, SETTINGS))
    with pytest.raises(ProducerFencedError):
        shell.run(end_transaction(shell.cluster, prepared, commit=True))
