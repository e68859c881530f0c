"""Offsets in transactions: they count with the marker, and as of where they stand in the log."""

from __future__ import annotations

import pytest

from tests.unit.coordinators.groups.helpers import TOPIC_ID, Client, World, form_group
from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.records import decode_record, encode_record
from tidelog.coordinators.outcome import InTransaction
from tidelog.errors import ErrorCode, KafkaError

NOBODY = Committer("", None, -1, in_transaction=True)


class TransactionalWorld(World):
    """A shard whose log has transactions in it."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[int, bytes, bytes | None] | tuple[int, bool]] = []

    def commit_in(
        self, producer_id: int, offset: int, committer: Committer = NOBODY, partition: int = 0
    ) -> list[ErrorCode]:
        commits = [Commit("t", TOPIC_ID, partition, offset, -1, "")]
        transaction = InTransaction(producer_id, 0, None)
        outcome = self.shard.commit_in_transaction("g", committer, commits, transaction, self.now)
        assert outcome.transaction is transaction
        for record in outcome.records:
            decoded = decode_record(*encode_record(record))
            assert decoded is not None
            self.shard.replay_pending(decoded, producer_id)
        codes: list[ErrorCode] = outcome.answer
        return codes

    def end(self, producer_id: int, *, committed: bool = True) -> None:
        self.shard.end_transaction(producer_id, committed)

    def is_unstable(self, partition: int = 0) -> bool:
        return self.shard.offsets.is_unstable("g", "t", partition)


@pytest.mark.parametrize(("committed", "offset"), [(True, 7), (False, 3)])
def test_t19_an_offset_in_a_transaction_counts_when_it_is_committed(
    committed: bool, offset: int
) -> None:
    world = TransactionalWorld()
    world.commit(3)
    assert world.commit_in(1, 7) == [ErrorCode.NONE]
    assert world.committed() == 3 and world.is_unstable()
    world.end(1, committed=committed)
    assert world.committed() == offset and not world.is_unstable()
    world.end(1, committed=True)
    assert world.committed() == offset


def test_t19_the_end_of_one_transaction_decides_no_other() -> None:
    world = TransactionalWorld()
    world.commit_in(1, 7)
    world.commit_in(2, 8, partition=1)
    world.end(2, committed=True)
    assert world.committed() is None and world.is_unstable()
    assert world.committed(partition=1) == 8 and not world.is_unstable(1)


def test_what_is_committed_outside_after_it_stays() -> None:
    world = TransactionalWorld()
    world.commit_in(1, 7)
    world.commit(9)
    assert world.is_unstable()
    world.end(1)
    assert world.committed() == 9


def test_the_last_offset_of_a_transaction_counts() -> None:
    world = TransactionalWorld()
    world.commit_in(1, 7)
    world.commit_in(1, 5)
    world.end(1)
    assert world.committed() == 5


def test_what_is_deleted_meanwhile_does_not_come_back() -> None:
    world = TransactionalWorld()
    world.commit(3)
    world.commit_in(1, 7)
    world.run(lambda shard, _: shard.delete_offsets("g", [("t", 0)]))
    world.end(1)
    assert world.committed() is None


def test_a_group_that_is_deleted_meanwhile_does_not_come_back() -> None:
    world = TransactionalWorld()
    world.commit_in(1, 7)
    world.run(lambda shard, _: shard.delete_group("g"))
    world.end(1)
    assert world.shard.table.find("g") is None and world.committed() is None


def test_what_is_pending_does_not_expire() -> None:
    world = TransactionalWorld()
    world.commit(3)
    world.commit_in(1, 7)
    world.pass_time(30 * 24 * 3_600_000)
    world.expire_offsets()
    assert world.committed() == 3
    world.end(1, committed=False)
    world.expire_offsets()
    assert world.committed() is None and world.shard.table.find("g") is None


def test_t19_a_member_of_an_older_generation_cannot_commit_in_a_transaction() -> None:
    """KIP-447"""
    world = TransactionalWorld()
    zombie, other = Client(world), Client(world)
    form_group(world, [zombie, other])
    known = zombie.committer._replace(in_transaction=True)
    assert world.commit_in(1, 5, known) == [ErrorCode.NONE]
    for late, code in (
        (known._replace(generation=known.generation - 1), ErrorCode.ILLEGAL_GENERATION),
        (known._replace(member_id="gone"), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as caught:
            world.commit_in(1, 5, late)
        assert caught.value.code is code
    # One that does not say who it is, is taken: so do producers of before KIP-447.
    assert world.commit_in(1, 6) == [ErrorCode.NONE]


def test_a_generation_of_a_group_that_is_not_there_is_refused() -> None:
    world = TransactionalWorld()
    with pytest.raises(KafkaError) as caught:
        world.commit_in(1, 5, NOBODY._replace(generation=3, member_id="m"))
    assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
