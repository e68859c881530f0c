"""What a program has started ends with it, however the program ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from scripts import guardian
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]

# It starts a child in a group of its own from a thread that ends, a grandchild in a session of its
# own that ignores what can be ignored, and a child that holds no pipe of it.
PARENT = """
import os, signal, subprocess, sys, threading
from scripts.guardian import guard

WAIT = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; signal.pause()"
BELOW = f"import subprocess, sys, signal; p = subprocess.Popen([sys.executable, '-c', {WAIT!r}], "
BELOW += "start_new_session=True); print(p.pid, flush=True); signal.pause()"
guard()

def start(code, **options):
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, **options)

started = []
thread = threading.Thread(target=lambda: started.append(start(WAIT, process_group=0)))
thread.start()
thread.join()
started.append(start(BELOW))
print(os.getpid(), *(each.pid for each in started), int(started[1].stdout.readline()), flush=True)
HOW
"""


def start(tmp_path: Path, how: str, *, below_make: bool = False) -> subprocess.Popen[str]:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.replace("HOW", how))
    command = [sys.executable, str(script)]
    if below_make:
        make = shutil.which("make")
        assert make is not None
        (tmp_path / "Makefile").write_text(f"all:\n\t@{sys.executable} {script}\n")
        command = [make, "-s", "-C", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def read_family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The program and the three below it."""
    assert process.stdout is not None
    family = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
    assert len(family) == 4
    return family


def all_gone(family: list[psutil.Process]) -> bool:
    return not any(
        each.is_running() and each.status() != psutil.STATUS_ZOMBIE
        for each in family
        if psutil.pid_exists(each.pid)
    )


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("signal.pause()", signal.SIGKILL),
        ("signal.pause()", signal.SIGTERM),
        ("os._exit(0)", None),
        ("sys.exit(0)", None),
    ],
    ids=["SIGKILL", "SIGTERM", "_exit", "exit"],
)
def test_all_that_a_program_started_ends_with_it(
    tmp_path: Path, how: str, number: signal.Signals | None
) -> None:
    with start(tmp_path, how) as process:
        family = read_family(process)
        if number is not None:
            process.send_signal(number)
    eventually(lambda: all_gone(family), lambda: family)


def test_a_program_and_its_children_end_with_the_make_that_ran_it(tmp_path: Path) -> None:
    with start(tmp_path, "signal.pause()", below_make=True) as make:
        family = read_family(make)
        assert make.pid not in {each.pid for each in family}
        make.kill()
    eventually(lambda: all_gone(family), lambda: family)


def test_a_program_that_is_well_keeps_its_children(tmp_path: Path) -> None:
    with start(tmp_path, "sys.stdin.readline()") as process:
        family = read_family(process)
        marks = family[1].environ()[guardian.MARKS].split()
        mark = next(each for each in marks if each.startswith(f"{process.pid}."))
        assert sorted(guardian.marked(mark)) == sorted(each.pid for each in family[1:])
        assert all(each.is_running() for each in family)
        process.kill()
    eventually(lambda: all_gone(family), lambda: family)
    eventually(lambda: not guardians_of(mark))


def guardians_of(mark: str) -> list[int]:
    """The processes that were given the mark to look for."""
    looked_at = psutil.process_iter(["cmdline"])
    return [each.pid for each in looked_at if mark in (each.info["cmdline"] or ())]


def test_marks_are_found_without_proc() -> None:
    mark = f"{os.getpid()}.for-ps"
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, env={guardian.MARKS: f"outer {mark} inner"}
    ) as child:
        eventually(lambda: guardian._marked_by_ps(mark) == [child.pid])
        child.kill()


def test_what_the_tests_start_bears_their_mark() -> None:
    """So it ends when this process is killed."""
    assert os.environ[guardian.MARKS]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        mark = os.environ[guardian.MARKS].split()[-1]
        assert mark.startswith(f"{os.getpid()}.")
        eventually(lambda: child.pid in guardian.marked(mark))
        child.kill()
