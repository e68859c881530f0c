"""Lines through curves, what they say at a size that they have not seen, and the capacity model."""

import pytest

from bench.capacity import Costs, Load, needs
from bench.growth import Curve


def curve(values: tuple[float, ...], held_out: int = 1_000) -> Curve:
    return Curve("key", "A request", "things", "µs", (1, 10, 100, 1_000, 10_000), values, held_out)


def test_a_line_is_found_without_the_point_that_it_is_held_against() -> None:
    bent = curve((5.02, 5.2, 7.0, 40.0, 205.0))
    assert bent.fit() == pytest.approx((5.0, 0.02))
    assert bent.check() == pytest.approx((25.0, 40.0))


def test_a_cost_that_does_not_grow_is_a_flat_line() -> None:
    intercept, slope = curve((7.0,) * 5).fit()
    assert intercept == pytest.approx(7.0)
    assert slope == pytest.approx(0.0)


def test_the_model_adds_up_what_each_broker_is_asked() -> None:
    cost = Costs(
        request=20.0, system=10.0, produce_byte=0.001, fetch=30.0, fetch_byte=0.0005,
        heartbeat=10.0, commit=40.0, idle_replica_per_s=2.0, partition_mb=0.004,
    )  # fmt: skip
    alone = dict(needs(Load(1, 100, 16_000, replicas=1), cost))
    # A thousand batches of 16 KB in each second, written once and read once.
    assert alone["produce requests"] == pytest.approx(1_000 * (30 + 16))
    assert alone["serving consumers"] == pytest.approx(1_000 * (40 + 8))
    assert alone["idle replicas"] == pytest.approx(200)
    assert alone["heartbeats and commits"] == 0
    half = dict(needs(Load(2, 100, 16_000, replicas=2), cost))
    assert half["produce requests"] == pytest.approx(alone["produce requests"] / 2)
    assert half["serving followers"] > 0 and half["following"] > half["produce requests"]
    assert half["idle replicas"] == pytest.approx(200)
