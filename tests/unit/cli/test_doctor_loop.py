"""The doctor says when one broker's event loop is the limit, and when it is kept from running."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.test_doctor import listener, unused_port
from tidelog.cli import doctor_loop
from tidelog.cli.doctor_loop import Sample, judge
from tidelog.cli.main import main
from tidelog.testing import Broker


def samples(cpu: float, late: float = 0.0) -> tuple[Sample, Sample]:
    """Two seconds apart, with forty heartbeats in between."""
    return Sample(10.0, 5.0, 1.0, 100.0), Sample(12.0, 5.0 + cpu, 1.0 + late, 140.0)


def test_a_loop_that_uses_its_core_up_is_the_limit() -> None:
    finding = judge(*samples(cpu=1.94, late=8.0))
    assert not finding.ok
    assert "used 97% of a core in 2.0 s: it is the limit" in finding.sentence
    assert "tidelog up --brokers" in finding.hint and "partitions" in finding.hint


def test_a_loop_that_is_late_without_using_its_core_is_kept_from_running() -> None:
    finding = judge(*samples(cpu=0.4, late=1.2))
    assert not finding.ok
    assert "only 20% of a core" in finding.sentence and "30 ms late" in finding.sentence
    assert "others use" in finding.hint


def test_a_loop_with_room_is_well_also_after_a_restart_in_between() -> None:
    assert judge(*samples(cpu=0.2)).ok
    assert "used 10% of a core" in judge(*samples(cpu=0.2)).sentence
    restarted = Sample(12.0, 0.1, 0.0, 3.0)
    assert judge(samples(0.0)[0], restarted).ok


def test_the_loop_of_a_real_broker_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(settings={"metrics.listener": "127.0.0.1:0"}) as broker:
        address = f"127.0.0.1:{broker.metrics_port}"
        before = after = doctor_loop.sample(address, 5)
        while after.heartbeats < before.heartbeats + 3:
            # Each of these costs the loop some time, and there is one every 50 ms.
            after = doctor_loop.sample(address, 5)
        assert after.cpu_seconds > before.cpu_seconds and after.at > before.at
        with pytest.raises(SystemExit):
            main(["doctor", "-b", broker.bootstrap_servers, "--metrics", address,
                  "--format", "json"])  # fmt: skip
    names = [each["name"] for each in json.loads(capsys.readouterr().out)]
    assert "event loop" in names


@pytest.mark.parametrize("address", ["nowhere", ":1", "127.0.0.1:x", f"127.0.0.1:{unused_port()}"])
def test_metrics_that_cannot_be_read_are_named(address: str) -> None:
    finding = doctor_loop.examine(address, 1)
    assert not finding.ok
    assert f"metrics at {address} cannot be read" in finding.sentence


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"HTTP/1.0 403 No\r\n\r\n", "status 403"),
        (b"HTTP/1.0 200 OK\r\n\r\nup 1\n", "no tidelog_loop_cpu_seconds_total"),
        (b"SSH-2.0\r\n", "does not speak HTTP"),
    ],
)
def test_what_is_not_a_brokers_metrics_is_named(answer: bytes, what: str) -> None:
    def serve(stream: object) -> None:
        stream.recv(1000)  # type: ignore[attr-defined]
        stream.sendall(answer)  # type: ignore[attr-defined]

    with listener(serve) as port:
        finding = doctor_loop.examine(f"127.0.0.1:{port}", 5)
    assert not finding.ok and what in finding.sentence
