"""What the benchmark says of its rounds: figures, floors, the page."""

from typing import Any

import pytest

from bench.figures import figures, floors
from bench.measure import percentile, spread
from bench.profile import summed_up
from bench.report import page


def a_round(records: int, elapsed_s: float, cpu_s: float) -> dict[str, Any]:
    size_bytes = records * 1_000
    times = {"elapsed_s": elapsed_s, "cpu_user_s": cpu_s / 2, "cpu_system_s": cpu_s / 2}
    return {"records": records, "bytes": size_bytes, **times}


def results(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "taken": "2026-01-01 00:00 UTC",
        "rounds": 3,
        "quick": False,
        "seconds": 60.0,
        "machine": {"processor": "a machine", "cores": "2"},
        "quiet": {"others_cores": 0.1, "load_average": 0.2},
        "peers": {"kafka": "4.3.0", "tidelog": "0.1"},
        "not_run": ["the bare loop: no compiler"],
        "profiles": {"a load": [(0.5, "write (libc.so.6)")]},
        "rows": list(rows),
    }


def row(kind: str, **rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return {"key": kind, "title": f"a {kind} row", "kind": kind, "rounds": rounds}


def test_figures_are_medians_with_their_spread() -> None:
    found = figures([a_round(1_000, seconds, 0.5) for seconds in (1.0, 4.0, 2.0)])
    rate = found["records_per_s"]
    assert (rate.median, rate.low, rate.high, rate.rounds) == (500, 250, 1_000, 3)
    assert found["cpu_s_per_gb"].median == pytest.approx(500)
    assert "p50_ms" not in found


def test_a_throughput_row_has_a_floor_for_the_rate_and_one_for_processor_time() -> None:
    kafka, ours = [a_round(1_000, 1.0, 2.0)], [a_round(850, 1.0, 1.0)]
    rate, cpu = floors(results(row("throughput", kafka=kafka, tidelog=ours)))
    assert not rate.met
    assert rate.bound == pytest.approx(900)
    assert rate.short_by == pytest.approx(50 / 900)
    assert cpu.met


def test_a_figure_above_its_upper_bound_is_short_by_the_excess() -> None:
    rounds = [{"elapsed_s": 0.45, "resident_mb": 50.0}]
    start, memory = floors(results(row("start", tidelog=rounds)))
    assert not start.met
    assert start.short_by == pytest.approx(0.5)
    assert memory.met


def test_without_kafka_only_absolute_floors_are_judged() -> None:
    alone = row("throughput", tidelog=[a_round(1_000, 1.0, 1.0)])
    assert list(floors(results(alone))) == []


def test_the_limit_is_held_against_the_bare_loop() -> None:
    sides = {name: [a_round(count, 1.0, 1.0)] for name, count in (("tidelog", 60), ("bare", 100))}
    small = {**row("limit", **sides), "key": "limit-64-kib"}
    large = {**row("limit", **sides), "key": "limit-1-mb"}
    of_small, of_large = floors(results(small, large))
    assert of_small.tidelog == of_large.tidelog == pytest.approx(0.6)
    assert of_small.met and not of_large.met


def test_small_requests_are_held_against_kafka_or_what_python_can_do() -> None:
    def sides(kafka: int, bare: int) -> dict[str, Any]:
        counts = {"kafka": kafka, "tidelog": 650, "uvloop": bare}
        return {
            name: [{**a_round(1, 1.0, 1.0), "requests": count}] for name, count in counts.items()
        }

    (python,) = floors(results(row("requests", **sides(900, 1_000))))
    assert (python.bound, python.met) == (pytest.approx(600), True)
    (theirs,) = floors(results(row("requests", **sides(700, 2_000))))
    assert (theirs.bound, theirs.met) == (pytest.approx(700), False)


def test_latency_is_held_against_kafkas_and_against_half_of_it_above_the_client() -> None:
    sides = {
        name: [{"elapsed_s": 1.0, "p50_ms": p50, "p99_ms": p50 * 2}]
        for name, p50 in (("bare", 0.1), ("tidelog", 0.18), ("kafka", 0.2))
    }
    p50, p99, p50_above, p99_above = floors(results(row("latency", **sides)))
    assert p50.met and p99.met
    assert p50_above.bound == pytest.approx(0.05)
    assert p50_above.tidelog == pytest.approx(0.08)
    assert not p50_above.met and not p99_above.met


def test_groups_are_held_against_bounds_of_their_own() -> None:
    rounds = [{"elapsed_s": 20.0, "p50_ms": 5.0, "p99_ms": 72.0, "resident_mb": 200.0}]
    offsets = [{"elapsed_s": 1.5, "loaded_s": 1.0}]
    taken = results(row("groups", tidelog=rounds, kafka=rounds), row("offsets", tidelog=offsets))
    stable, p99, memory, loaded = floors(taken)
    assert stable.met and memory.met and loaded.met
    assert (p99.bound, p99.met) == (60.0, False)
    assert p99.short_by == pytest.approx(0.2)
    text = page(taken, None)
    assert "20.0 s; 5 p50 ms; 72.0 p99 ms; 200 resident MB" in text
    assert "1 s from listening" in text


def test_a_bound_on_what_only_we_measure_stands_beside_a_kafka_that_lacks_it() -> None:
    ours = [a_round(1_000, 1.0, 2.0) | {"callback_ms": 40.0}]
    (floor,) = floors(results(row("brokers", tidelog=ours, kafka=[a_round(1_000, 1.0, 2.0)])))
    assert (floor.kafka, floor.bound, floor.met) == (None, 250.0, True)


def test_the_page_names_machine_versions_floors_and_what_was_not_run() -> None:
    kafka, ours = [a_round(1_000, 1.0, 2.0)], [a_round(850, 1.0, 1.0)]
    text = page(results(row("throughput", kafka=kafka, tidelog=ours)), "plot.svg")
    for part in (
        "Apache Kafka 4.3.0",
        "1 of 2 floors are met",
        "**short by 6%**",
        "a machine",
        "no compiler",
        "50.0%  write (libc.so.6)",
        "(plot.svg)",
    ):
        assert part in text


def test_the_page_warns_of_a_quick_run_and_of_a_busy_machine() -> None:
    busy = [{**a_round(1_000, 1.0, 1.0), "others_cores": 1.5}]
    taken = results(row("throughput", kafka=busy, tidelog=busy)) | {"quick": True}
    text = page(taken, None)
    assert "This was a quick run" in text
    assert "others used so many of 2 cores" in text and "a throughput row (1.5)" in text


def test_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile([7.0], 0.99) == 7


def test_spread_of_one_round_is_that_round() -> None:
    assert (spread([2.5]).low, spread([2.5]).high) == (2.5, 2.5)


def test_a_profile_sums_own_time_by_function_and_leaves_out_waiting_threads() -> None:
    stacks = [
        "main (a.py:1);work (b.py:10) 3",
        "main (a.py:2);work (b.py:12) 5",
        "main (a.py:3) 2",
        "thread (t.py:1);_queue_SimpleQueue_get (_queuemodule.c:1) 90",
    ]
    assert summed_up(stacks) == [(0.8, "work (b.py)"), (0.2, "main (a.py)")]


def test_rows_that_are_not_run_again_are_kept_with_their_time() -> None:
    from bench.__main__ import with_kept_rows

    def results(taken: str, **rows: int) -> dict[str, Any]:
        made = [{"key": key, "title": key, "kind": "start", "n": n} for key, n in rows.items()]
        return {
            "taken": taken, "rows": made, "profiles": dict.fromkeys(rows, taken),
            "peers": {taken: ""},
        }  # fmt: skip

    before = {**results("monday", **{"produce-1k": 1, "start": 1, "memory": 1})}
    merged = with_kept_rows(results("friday", **{"produce-1k": 2}), before)
    assert [(row["key"], row["n"], row["taken"]) for row in merged["rows"]] == [
        ("start", 1, "monday"), ("produce-1k", 2, "friday"), ("memory", 1, "monday"),
    ]  # fmt: skip
    assert merged["taken"] == "friday"
    assert merged["profiles"] == {"start": "monday", "memory": "monday", "produce-1k": "friday"}


def test_three_brokers_are_held_against_kafka_and_against_what_a_loop_in_c_needs() -> None:
    kafka, ours = [a_round(1_000, 1.0, 0.01)], [a_round(1_200, 1.0, 0.006)]
    produce = row("cluster-throughput", kafka=kafka, tidelog=ours) | {"key": "cluster-produce-1k"}
    absolute, rate, cpu = floors(results(produce))
    assert (absolute.bound, absolute.met) == (3.4, False)
    assert rate.bound == pytest.approx(1_300) and not rate.met
    assert cpu.bound == pytest.approx(6.0) and cpu.met


def test_what_idle_replicas_cost_is_shown_with_its_floors() -> None:
    idle = {"elapsed_s": 5.0, "idle_percent": 3.3, "callback_ms": 40.0, "resident_mb_each": 60.0}
    share, callback = floors(results(row("idle-replicas", tidelog=[idle])))
    assert not share.met and callback.met
    text = page(results(row("idle-replicas", tidelog=[idle])), None)
    assert "**short by 10%**" in text and "3.3 % of a core" in text


def test_rows_that_were_taken_beside_others_are_named_though_most_were_not() -> None:
    alone = [a_round(1_000, 1.0, 1.0) | {"others_cores": 0.1}] * 5
    beside = [a_round(1_000, 1.0, 1.0) | {"others_cores": 1.5}]
    text = page(results(row("limit", tidelog=alone), row("cluster-batches", tidelog=beside)), None)
    (warning,) = (line for line in text.splitlines() if "was not quiet" in line)
    assert "a cluster-batches row" in warning and "a limit row" not in warning


def test_tls_is_held_against_all_of_kafkas_rate_and_its_processor_time() -> None:
    kafka, ours = [a_round(1_000, 1.0, 2.0)], [a_round(950, 1.0, 1.0)]
    rate, cpu = floors(results(row("tls", kafka=kafka, tidelog=ours)))
    assert rate.bound == pytest.approx(1_000) and not rate.met
    assert cpu.met


def test_log_ins_are_held_against_kafkas() -> None:
    times = {"elapsed_s": 2.0, "cpu_user_s": 1.0, "cpu_system_s": 0.0}
    kafka, ours = [{**times, "logins": 2_000}], [{**times, "logins": 4_000}]
    rate, cpu = floors(results(row("logins", kafka=kafka, tidelog=ours)))
    assert (rate.bound, rate.tidelog, rate.met) == (1_000, 2_000, True)
    assert (cpu.bound, cpu.tidelog, cpu.met) == (0.5, 0.25, True)


def test_rules_may_cost_three_percent_of_a_small_request() -> None:
    def measured(percent: float) -> list[dict[str, Any]]:
        return [{"elapsed_s": 1.0, "acl_percent": percent, "open_requests_per_cpu_s": 9.0}]

    (cost,) = floors(results(row("acls", kafka=measured(12.0), tidelog=measured(3.6))))
    assert (cost.kafka, cost.bound, cost.met) == (12.0, 3.0, False)
    assert "3.6 % more CPU with rules" in page(results(row("acls", tidelog=measured(3.6))), None)


def test_a_throttled_client_may_be_five_percent_off_its_quota_on_either_side() -> None:
    shares = {"producer_of_quota": 0.94, "consumer_of_quota": 1.04}
    times = {"p50_ms": 0.3, "p99_ms": 2.0, "alone_p50_ms": 0.2, "alone_p99_ms": 1.0}
    rounds = [{"elapsed_s": 1.0, **shares, **times}]
    producer, consumer, beside = floors(results(row("quota", tidelog=rounds)))
    assert producer.tidelog == pytest.approx(6) and not producer.met
    assert consumer.tidelog == pytest.approx(4) and consumer.met
    assert beside.tidelog == pytest.approx(1.5) and beside.met
