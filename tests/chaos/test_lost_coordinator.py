"""A copy that did not end: librdkafka waited for a group coordinator that had left the metadata."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos.copying import check_stuck, stuck_calls

_SECONDS = 240.0


@pytest.mark.long
def test_a_call_of_librdkafka_that_never_returns_has_no_request_to_answer() -> None:
    """Where this fails, the client is mended: its fault can go from docs/transactions.md."""
    command = [sys.executable, "-m", "tests.chaos.lost_coordinator"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    assert "another producer has committed meanwhile" in run.stdout
    assert "s later: not returned" in run.stdout
    assert "\nrequests after AddOffsetsToTxn: 0\n" in run.stdout


def _watchdog_in(call: str) -> str:
    """What a copier says whose watchdog ends it in this call."""
    program = (
        "import threading, tests.e2e.transaction_copier as copier\n"
        "from unittest.mock import Mock\n"
        "copier.SECONDS = 0.1\n"
        "made = copier.Copier.__new__(copier.Copier)\n"
        "made.target, made.consumer, made.producer = 'out', Mock(), Mock()\n"
        f"made.producer.{call}.side_effect = lambda *_: threading.Event().wait()\n"
        "message = Mock(partition=lambda: 0, offset=lambda: 0, topic=lambda: 'in')\n"
        "made._copy([message])\n"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert run.returncode == 1
    return run.stderr


def test_a_copy_fails_where_a_call_hangs_that_has_no_known_fault() -> None:
    known = stuck_calls(_watchdog_in("send_offsets_to_transaction"))
    assert known == ["send_offsets_to_transaction"]
    check_stuck(known, broker_kills=1)
    other = stuck_calls(_watchdog_in("commit_transaction"))
    assert other == ["commit_transaction"]
    with pytest.raises(AssertionError, match="must return: \\['commit_transaction'\\]"):
        check_stuck(other, broker_kills=1)


def test_a_copy_fails_where_a_call_hangs_and_no_broker_was_away() -> None:
    with pytest.raises(AssertionError, match="1 copiers hung after 0 brokers"):
        check_stuck(["send_offsets_to_transaction"], broker_kills=0)


def test_a_watchdog_whose_words_are_cut_off_counts_as_unknown() -> None:
    assert stuck_calls("Timeout (0:00:20)!\nThread 0x1 (most recent call first):\n") == ["?"]


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
