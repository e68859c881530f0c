"""Up to which line an input is delivered, whatever order its batches end in."""

from __future__ import annotations

from tidelog.cli.produce_resume import SentLines
from tidelog.client.batching import Batch, Delivery
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition


def batch(partition: int, *order: int) -> Batch:
    return Batch(TopicPartition("orders", partition), order, created=0.0, deadline=0.0)


def test_lines_before_the_first_batch_that_is_not_delivered_are_left_out() -> None:
    lines = SentLines(skipped=10)
    assert lines.delivered_lines == 10
    first, second = batch(0, 0), batch(1, 0)
    for line, each in ((11, first), (12, second), (14, first), (15, second)):
        lines.sent(line, Delivery(each, 0))
    assert lines.delivered_lines == 10
    lines.delivered(second)
    assert lines.delivered_lines == 10
    lines.delivered(first)
    assert lines.delivered_lines == 15


def test_half_of_a_batch_that_was_split_does_not_stand_for_all_of_it() -> None:
    lines = SentLines(skipped=0)
    lines.sent(1, Delivery(batch(0, 7), 0))
    lines.delivered(batch(0, 7, 0))
    assert lines.delivered_lines == 0


def test_a_batch_that_is_delivered_before_its_send_returns_is_not_waited_for() -> None:
    """A process that is starved of CPU sends, and hears the answer, within one call."""
    lines = SentLines(skipped=0)
    early, refused = batch(0, 0), batch(0, 1)
    early.done = True
    lines.delivered(early)
    lines.sent(1, Delivery(early, 0))
    assert lines.delivered_lines == 1
    refused.done, refused.error = True, KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    lines.sent(2, Delivery(refused, 0))
    assert lines.delivered_lines == 1
