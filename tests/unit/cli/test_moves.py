"""What `cluster reassign --wait` says while a move cannot go on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tidelog.cli import moves
from tidelog.cli.moves import wait_until_moved, what_keeps
from tidelog.client.blocking import Client
from tidelog.client.metadata import PartitionMetadata
from tidelog.client.replica_admin import Move
from tidelog.model import TopicPartition

ORDERS = TopicPartition("orders", 0)


def state(leader: int) -> PartitionMetadata:
    return PartitionMetadata(0, leader, 3, [1, 2], [1], [], 0)


def test_a_move_without_anybody_to_copy_from_names_whom_to_start() -> None:
    move = Move(ORDERS, [1, 2], adding=[2], removing=[1])
    assert what_keeps([move], {ORDERS: state(1)}, {0, 1, 2}) == []
    assert what_keeps([move], {ORDERS: state(-1)}, {0, 2}) == [
        "waiting: nobody leads orders-0, to copy from; start broker 1"
    ]
    assert what_keeps([move], {ORDERS: state(-1)}, {0, 1, 2}) == [
        "waiting: nobody leads orders-0, to copy from; start a broker that has the records"
    ]
    assert what_keeps([move], {ORDERS: state(1)}, {0, 1}) == [
        "waiting: orders-0 cannot be copied; start broker 2"
    ]
    # Deleted meanwhile: the list of moves is about to say so.
    assert what_keeps([move], {}, {0}) == ["waiting: orders-0 cannot be copied; start broker 2"]


def test_what_keeps_a_move_is_said_once_and_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    move = Move(ORDERS, [1, 2], adding=[2], removing=[1])
    looks = [["broker 1 is away"], ["broker 1 is away"], [], []]
    left = [[move]] * len(looks) + [[]]
    monkeypatch.setattr(moves, "moving", lambda client, places: left.pop(0))
    monkeypatch.setattr(moves, "_look", lambda client, moves: looks.pop(0))
    rests: list[float] = []
    wait_until_moved(cast(Client, cast(Any, None)), [ORDERS], rests.append)
    assert capsys.readouterr().err.splitlines() == ["broker 1 is away", "the copying goes on"]
    assert len(rests) == 4 and not left
