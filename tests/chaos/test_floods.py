"""Floods of connections, half requests, guesses and producer ids: all of them are bounded."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SECONDS = 1800.0


@pytest.mark.long
def test_x27_floods_of_a_hostile_client_leave_a_broker_that_serves() -> None:
    command = [sys.executable, "-m", "tests.chaos.floods"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "the broker served throughout" in run.stdout
    for flood in ("slow", "crowd", "guesses", "producer ids"):
        assert f"\n{flood}: " in f"\n{run.stdout}"
    sys.stdout.write(run.stdout)
