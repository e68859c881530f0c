"""Ends what a program has started once the program is gone, however it went: `guard()`.

A program that is ended by SIGKILL cannot stop its brokers, JVMs and clients. So a process of its
own, which no signal to a group reaches, reads from a pipe that the program alone keeps open.
When the pipe ends, the guardian kills every process that has the program's mark in its environment:
all that was started after `guard()`, by anybody below, in whatever process group or session.

Started by make, the program ends with make, too, which cannot pass on a SIGKILL. The same goes for
an ancestor that names itself in GUARDED_BY. Such a program gets SIGTERM first, to end in order.

    python guardian.py MARK PROGRAM [ANCESTOR ...]      # `guard` starts it so
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Every mark that a process stands under, the outermost first; not a setting of Tidelog's.
MARKS = "GUARDED_RUNS"
STARTER = "GUARDED_BY"
LOOK_S = 0.05
# How long a program may take to end in order when only its make was killed.
GRACE_S = 10.0
SWEEP_S = 60.0
_PROC = Path("/proc")
_held: list[int] = []


def guard() -> None:
    """See that nothing which is started from now on outlives this process."""
    if _held:
        return
    mark = f"{os.getpid()}.{time.time_ns()}"
    read_end, write_end = os.pipe()
    command = [sys.executable, "-I", "-S", __file__, mark, str(os.getpid())]
    # It forks and is nobody's child, so this comes back at once.
    subprocess.run(
        [*command, *map(str, _starters())],
        stdin=read_end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=True,
    )
    os.close(read_end)
    _held.append(write_end)
    os.environ[MARKS] = f"{os.environ.get(MARKS, '')} {mark}".strip()


def _starters() -> list[int]:
    """The ancestors up to make, or up to the program that said that it is the one."""
    found = []
    for pid, name in _ancestors(os.getppid()):
        found.append(pid)
        if name in ("make", "gmake") or str(pid) == os.environ.get(STARTER):
            return found
    return []


def _ancestors(pid: int) -> Iterator[tuple[int, str]]:
    while pid > 1:
        row = _look_at(pid)
        if row is None:
            return
        name, _, parent = row
        yield pid, name
        pid = parent


def _look_at(pid: int) -> tuple[str, str, int] | None:
    """The name, the state and the parent of a process that is there."""
    if _PROC.exists():
        try:
            before, _, after = (_PROC / str(pid) / "stat").read_text().rpartition(")")
        except OSError:
            return None
        state, parent = after.split()[:2]
        return before.partition("(")[2], state, int(parent)
    command = ["ps", "-o", "state=,ppid=,comm=", "-p", str(pid)]
    row = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split(None, 2)
    return (os.path.basename(row[2].strip()), row[0], int(row[1])) if len(row) == 3 else None


def marked(mark: str) -> list[int]:
    """The processes that were started below the program with this mark."""
    if not _PROC.exists():
        return _marked_by_ps(mark)
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if any(_holds(each, mark) for each in environment.split(b"\0")):
                found.append(int(entry.name))
    return found


def _marked_by_ps(mark: str) -> list[int]:
    """As `marked`, where there is no /proc: ps shows the environment behind the command."""
    command = ["ps", "axeww", "-o", "pid=,command="]
    rows = subprocess.run(command, capture_output=True, check=False).stdout.splitlines()
    found = []
    for row in rows:
        pid, _, rest = row.strip().partition(b" ")
        place = rest.find(f"{MARKS}=".encode())
        if place >= 0 and _holds(rest[place:], mark):
            found.append(int(pid))
    return found


def _holds(variable: bytes, mark: str) -> bool:
    return variable.startswith(f"{MARKS}=".encode()) and mark.encode() in variable


def _watch(program: int, starters: list[int]) -> None:
    """Come back when the program is gone; end it once one of those is gone who started it."""
    while not _ended(LOOK_S):
        if any(not _runs(pid) for pid in starters):
            break
    else:
        return
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        with suppress(ProcessLookupError):
            os.kill(program, number)
        if _ended(patience_s):
            return


def _ended(seconds: float) -> bool:
    """Whether the pipe ends within this time: nothing is ever written into it."""
    return bool(select.select([0], [], [], seconds)[0])


def _runs(pid: int) -> bool:
    row = _look_at(pid)
    return row is not None and not row[1].startswith("Z")


def main() -> None:
    mark, program, *starters = sys.argv[1:]
    if os.fork():
        return
    _watch(int(program), [int(each) for each in starters])
    deadline = time.monotonic() + SWEEP_S
    # One look may miss what is being started at that moment, so two in a row must find nothing.
    quiet = 0
    while quiet < 2 and time.monotonic() < deadline:
        left = marked(mark)
        quiet = 0 if left else quiet + 1
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
