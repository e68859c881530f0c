"""A copy that did not end: librdkafka waited for a group coordinator that had left the metadata."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SECONDS = 240.0


@pytest.mark.long
def test_a_call_of_librdkafka_that_never_returns_has_no_request_to_answer() -> None:
    """Where this fails, the client is mended: its fault can go from docs/transactions.md."""
    command = [sys.executable, "-m", "tests.chaos.lost_coordinator"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    assert "another producer has committed meanwhile" in run.stdout
    assert "s later: not returned" in run.stdout
    assert "\nrequests after AddOffsetsToTxn: 0\n" in run.stdout


def test_a_copier_in_a_call_that_never_returns_ends_so_that_another_can_take_its_place() -> None:
    program = (
        "import threading, tests.e2e.transaction_copier as copier\n"
        "copier.SECONDS = 0.1\n"
        "copier.until_done(threading.Event().wait)\n"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert run.returncode == 1
    assert "Timeout" in run.stderr
