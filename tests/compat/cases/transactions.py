"""Transactions: what is committed is read, what is not is not, and nobody ends another's."""

from __future__ import annotations

from confluent_kafka import Producer

from tests.compat.cases.group_members import expected, seed, until_read
from tests.compat.cases.registry import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    PRODUCER_FENCED,
    UNKNOWN_MEMBER_ID,
    Trial,
    case,
    refused,
    refused_with,
)
from tests.compat.members import Member
from tests.compat.transactions import TransactionalProducer

SECTION = "Transactions"
_SECONDS = 20.0
_FENCED = (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)


def read_committed(trial: Trial, topic: str, values: list[bytes]) -> None:
    """These and no others are committed in partition 0, by the wire and by the client."""
    view = trial.transaction_wire.until_stable(topic)
    assert list(view.values) == values
    if trial.consumes and values:
        start = {"at": "earliest"}
        with trial.driver.consumer(topic, start, isolation="read_committed") as consumer:
            assert [record.value for record in consumer.read(len(values))] == values


@case(SECTION, "commit: read by nobody before, by everybody after")
def transaction_commit(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    producer = trial.producer().open(trial.transactional_id())
    producer.begin()
    for partition in range(2):
        producer.deliver(topic, b"one", b"two", partition=partition)
    before = [trial.transaction_wire.view(topic, partition) for partition in range(2)]
    assert [(view.stable_offset, view.values) for view in before] == [(0, ())] * 2
    producer.commit()
    for partition in range(2):
        view = trial.transaction_wire.until_stable(topic, partition)
        assert (view.values, view.markers) == ((b"one", b"two"), (True,))
    read_committed(trial, topic, [b"one", b"two"])


@case(SECTION, "abort: what was written is not read")
def transaction_abort(trial: Trial) -> None:
    topic = trial.topic()
    producer = trial.producer().open(trial.transactional_id())
    for value, commits in ((b"kept", True), (b"gone", False), (b"also kept", True)):
        producer.begin()
        producer.deliver(topic, value)
        if commits:
            producer.commit()
        else:
            producer.abort()
    read_committed(trial, topic, [b"kept", b"also kept"])
    assert trial.transaction_wire.view(topic).markers == (True, False, True)
    values = [record.value for record in trial.wire.fetch_records(topic)]
    assert b"gone" in values


@case(SECTION, "thirty one after another, in several partitions")
def transaction_many(trial: Trial) -> None:
    topic = trial.topic(partitions=3)
    producer = trial.producer().open(trial.transactional_id())
    for number in range(30):
        producer.begin()
        for partition in range(1 + number % 3):
            producer.deliver(topic, b"%d" % number, partition=partition)
        if number % 5:
            producer.commit()
        else:
            producer.abort()
    for partition in range(3):
        trial.transaction_wire.until_stable(topic, partition)
        wanted = [n for n in range(30) if n % 5 and n % 3 >= partition]
        values = [int(value or b"") for value in trial.transaction_wire.values(topic, partition)]
        assert values == wanted
    written = [each for each in trial.wire.fetch_batches(topic) if each.base_sequence >= 0]
    epochs = {batch.producer_epoch for batch in written}
    assert len(epochs) == (30 if trial.client.raises_epochs else 1)


@case(SECTION, "empty ones: nothing is written, and the next one goes on")
def transaction_empty(trial: Trial) -> None:
    topic = trial.topic()
    producer = trial.producer().open(trial.transactional_id())
    producer.begin()
    producer.commit()
    producer.begin()
    producer.abort()
    assert trial.wire.fetch_batches(topic) == []
    producer.begin()
    producer.deliver(topic, b"one")
    producer.commit()
    read_committed(trial, topic, [b"one"])
    assert len(trial.wire.fetch_batches(topic)) == 2


@case(SECTION, "a second producer of the same id fences the first and aborts what it left open")
def transaction_fenced(trial: Trial) -> None:
    topic = trial.topic()
    transactional_id = trial.transactional_id()
    zombie = trial.producer().open(transactional_id)
    zombie.begin()
    zombie.deliver(topic, b"zombie")
    other = trial.producer().open(transactional_id)
    other.begin()
    other.deliver(topic, b"other")
    other.commit()
    with refused_with(_FENCED, {"fenced"}):
        zombie.deliver(topic, b"late")
        zombie.commit()
    read_committed(trial, topic, [b"other"])


@case(SECTION, "killed within one: it is aborted when the program comes back")
def transaction_killed(trial: Trial) -> None:
    topic = trial.topic()
    transactional_id = trial.transactional_id()
    killed = trial.producer().open(transactional_id)
    killed.begin()
    killed.deliver(topic, b"left open")
    killed.is_open = False
    trial.driver.kill()
    back = trial.producer().open(transactional_id)
    back.begin()
    back.deliver(topic, b"after")
    back.commit()
    read_committed(trial, topic, [b"after"])


@case(SECTION, "open for longer than its time-out: aborted, its end is refused")
def transaction_timeout(trial: Trial) -> None:
    topic = trial.topic()
    transactional_id = trial.transactional_id()
    late = trial.producer().open(transactional_id, timeout_ms=1_000)
    late.begin()
    late.deliver(topic, b"late")
    assert trial.transaction_wire.until_stable(topic).markers == (False,)
    # In version 2 it reads as a second end of what was ended the other way.
    with refused_with((*_FENCED, INVALID_TXN_STATE), {"fenced"}):
        late.commit()
    again = trial.producer().open(transactional_id)
    again.begin()
    again.deliver(topic, b"again")
    again.commit()
    read_committed(trial, topic, [b"again"])


def _copier(trial: Trial, source: str) -> tuple[Member, TransactionalProducer]:
    """A member of a group that has read ten records, and a producer for its offsets."""
    seed(trial, source, 1)
    transactional_id = trial.transactional_id()
    settings = {"auto_commit": False, "heartbeat_interval_ms": 6_000}
    member = trial.join(
        trial.unused_group(), [source], **settings, transactional_id=transactional_id
    )
    producer = trial.producer().open(transactional_id, member=member)
    until_read([member], expected(1))
    return member, producer


@case(SECTION, "offsets of a group are committed with it")
def transaction_offsets(trial: Trial) -> None:
    source, target = trial.topic(), trial.topic()
    member, producer = _copier(trial, source)
    producer.begin()
    producer.deliver(target, b"copied")
    producer.add_offsets(member, {(source, 0): 10})
    assert trial.group_wire.committed(member.group).get((source, 0), (-1, ""))[0] == -1
    producer.commit()
    read_committed(trial, target, [b"copied"])
    trial.transaction_wire.until_stable(target)
    assert trial.group_wire.stable_offset(member.group, source) == 10


@case(SECTION, "offsets of a group are not committed when it is aborted")
def transaction_offsets_aborted(trial: Trial) -> None:
    source, target = trial.topic(), trial.topic()
    member, producer = _copier(trial, source)
    producer.begin()
    producer.deliver(target, b"copied")
    producer.add_offsets(member, {(source, 0): 10})
    producer.abort()
    read_committed(trial, target, [])
    assert trial.group_wire.stable_offset(member.group, source) == -1


@case(SECTION, "a member that was removed from its group cannot commit offsets by one")
def transaction_offsets_refused(trial: Trial) -> None:
    source, target = trial.topic(), trial.topic()
    member, producer = _copier(trial, source)
    producer.begin()
    producer.deliver(target, b"copied")
    (member_id,) = trial.group_wire.describe(member.group).client_ids
    trial.group_wire.remove_member(member.group, member_id)
    with refused(UNKNOWN_MEMBER_ID, {"fenced"}):
        producer.add_offsets(member, {(source, 0): 10})
        producer.commit()
    producer.abort()
    read_committed(trial, target, [])
    assert trial.group_wire.stable_offset(member.group, source) == -1


@case(SECTION, "`read_committed`: leaves out what was aborted, stops at what is open")
def consume_transactions(trial: Trial) -> None:
    topic = trial.topic()
    host, port = trial.wire.address
    producers = [
        Producer(
            {
                "bootstrap.servers": f"{host}:{port}",
                "transactional.id": trial.transactional_id(),
                "log_level": 0,
            }
        )
        for _ in range(3)
    ]
    for producer in producers:
        producer.init_transactions(_SECONDS)
        producer.begin_transaction()
    commits, aborts, stays_open = producers
    for number in range(6):
        for name, producer in (("kept", commits), ("gone", aborts)):
            producer.produce(topic, f"{name}-{number}", partition=0)
            producer.flush(_SECONDS)
    commits.commit_transaction(_SECONDS)
    aborts.abort_transaction(_SECONDS)
    stays_open.produce(topic, "open", partition=0)
    stays_open.flush(_SECONDS)
    start = {"at": "earliest"}
    with trial.driver.consumer(topic, start, isolation="read_committed") as consumer:
        read = [record.value for record in consumer.read(6)]
        assert read == [b"kept-%d" % number for number in range(6)]
        assert consumer.read(1, timeout_ms=300) == []
        stays_open.commit_transaction(_SECONDS)
        assert [record.value for record in consumer.read(1)] == [b"open"]
