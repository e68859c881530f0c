"""A queue of deadlines without a clock."""

from __future__ import annotations

from random import Random

from tidelog.coordinators.timers import TimerQueue


def names(queue: TimerQueue[str], now_ms: int) -> list[str]:
    return list(queue.due(now_ms))


def test_what_is_due_comes_in_the_order_of_deadlines() -> None:
    queue: TimerQueue[str] = TimerQueue()
    queue.schedule("b", 20)
    queue.schedule("a", 10)
    queue.schedule("c", 30)
    assert names(queue, 9) == []
    assert names(queue, 20) == ["a", "b"]
    assert names(queue, 20) == []
    assert queue.next_deadline_ms() == 30


def test_a_moved_deadline_counts_whichever_way_it_was_moved() -> None:
    queue: TimerQueue[str] = TimerQueue()
    queue.schedule("a", 10)
    queue.schedule("a", 50)
    assert names(queue, 49) == []
    queue.schedule("a", 20)
    assert names(queue, 20) == ["a"]
    assert names(queue, 60) == []
    assert len(queue) == 0


def test_a_timer_that_is_scheduled_again_when_it_comes_up_comes_up_the_next_time() -> None:
    queue: TimerQueue[str] = TimerQueue()
    queue.schedule("a", 10)
    queue.schedule("b", 10)
    seen = []
    for timer in queue.due(10):
        assert len(seen) < 2, "the queue is never through"
        seen.append(timer)
        queue.schedule(timer, 10)
    assert seen == ["a", "b"] and queue.next_deadline_ms() == 11
    assert names(queue, 11) == ["a", "b"]
    # What a request schedules for now is due now.
    queue.schedule("a", 11)
    assert names(queue, 11) == ["a"]


def test_the_queue_equals_a_dictionary_of_deadlines() -> None:
    chance = Random(5)
    queue: TimerQueue[str] = TimerQueue()
    model: dict[str, int] = {}
    now = fired = 0
    for _ in range(20_000):
        key = str(chance.randrange(40))
        step = chance.random()
        if step < 0.6:
            model[key] = now + chance.randrange(100)
            queue.schedule(key, model[key])
        elif step < 0.8:
            model.pop(key, None)
            queue.cancel(key)
        else:
            now += chance.randrange(30)
            due = sorted(key for key, at in model.items() if at <= now)
            assert sorted(names(queue, now)) == due
            fired += len(due)
            model = {key: at for key, at in model.items() if at > now}
        following = queue.next_deadline_ms()
        assert (following is None) == (not model)
        if following is not None:
            assert following <= min(model.values())
    assert fired > 1_000
    assert len(queue._heap) <= 1_024 + 2 * 40 + 1
