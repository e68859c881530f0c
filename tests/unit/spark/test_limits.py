"""How far a micro-batch goes."""

from __future__ import annotations

from tidelog.model import TopicPartition
from tidelog.spark.source.limits import share_bytes, share_out

A, B, C = (TopicPartition("t", each) for each in range(3))
START = {A: 10, B: 0, C: 5}


def test_without_a_limit_everything() -> None:
    assert share_out(START, {A: 20, B: 5, C: 5}, None) == {A: 20, B: 5, C: 5}


def test_rows_are_shared_by_size_and_nobody_starves() -> None:
    ends = share_out(START, {A: 10 + 9_000, B: 3, C: 5 + 1_000}, 100)
    assert ends[A] - START[A] == 89
    assert ends[B] - START[B] == 1
    assert ends[C] - START[C] == 9


def test_a_partition_without_news_stays_where_it_is() -> None:
    assert share_out(START, {A: 10, B: 1_000, C: 5}, 10) == {A: 10, B: 10, C: 5}


def test_bytes_count_by_what_rows_take() -> None:
    ends = share_bytes(START, {A: 110, B: 100, C: 5}, {A: 1_000.0, B: 1.0}, 50_050)
    assert ends == {A: 60, B: 50, C: 5}


def test_one_huge_row_still_gets_through() -> None:
    assert share_bytes({A: 0}, {A: 10}, {A: 1e9}, 1_000) == {A: 1}


def test_where_sizes_are_unknown_bytes_do_not_limit() -> None:
    assert share_bytes({A: 0}, {A: 10}, {}, 1) == {A: 10}
