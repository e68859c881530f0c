"""The programs that the examples start: nothing of them stays, and what they said is told."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from examples.processes import Broker, Failure, Program

PARENT = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("child", child.pid, flush=True)
signal.pause()
"""


def program(directory: Path, text: str) -> Program:
    (directory / "a_program.py").write_text(text)
    return Program("it", ["a_program"], directory, {"PYTHONPATH": str(directory)})


@pytest.mark.parametrize("way", ["stop", "kill", "leave", "fail"])
def test_a_program_goes_with_all_that_it_started(tmp_path: Path, way: str) -> None:
    it = program(tmp_path, PARENT)
    with suppress(ZeroDivisionError), it:
        it.wait_until(lambda: it.said.endswith("\n"), "its child", 60.0)
        child = psutil.Process(int(it.said.split()[1]))
        if way == "stop":
            it.stop()
        elif way == "kill":
            it.kill()
        elif way == "fail":
            raise ZeroDivisionError
    assert not it.running
    assert psutil.wait_procs([child], 30)[1] == []


def test_a_program_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    it = program(tmp_path, "raise SystemExit('nobody is there')")
    with it:
        with pytest.raises(Failure, match=r"(?s)it ended with 1:.*nobody is there"):
            it.wait_until(lambda: False, "anything", 60.0)
        it.check(1)
        with pytest.raises(Failure, match="it ended with 1"):
            it.check(0)
    slow = program(tmp_path, PARENT)
    with slow:
        with pytest.raises(Failure, match="it did not end"):
            slow.wait(0.1)
        with pytest.raises(Failure, match="it runs still"):
            slow.check(0)


def test_a_broker_is_up_on_entry_and_gone_on_exit(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker", "log.cleaner.backoff.ms=500") as broker:
        assert broker.servers.startswith("127.0.0.1:") and broker.running
    assert broker.stop() == 0
    wrong = Broker(tmp_path / "wrong", "log.cleaner.backoff.ms=soon")
    with pytest.raises(Failure, match="soon"), wrong:
        raise AssertionError("it cannot be up")
    assert not wrong.running
