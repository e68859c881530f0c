"""Where a broker's time goes under a load: py-spy beside it, summed up by function."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

# Threads of a pool that wait for work are asleep, but py-spy may take them for running.
_WAITING = ("_queue_SimpleQueue_get", "epoll_wait", "epoll_pwait", "PyThread_acquire_lock")
_SHOWN = 15

Shares = list[tuple[float, str]]


def program() -> str | None:
    """py-spy, of this environment or of the machine."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


@contextlib.contextmanager
def profiled(pid: int) -> Iterator[Shares]:
    """Samples a process and its children while the block runs; fills the list when it ends."""
    shares: Shares = []
    command = program()
    assert command is not None, "py-spy is not installed"
    with tempfile.TemporaryDirectory(prefix="profile-") as directory:
        stacks = Path(directory) / "stacks"
        options = ["--native", "--rate", "400", "--duration", "600", "--format", "raw"]
        options.append("--subprocesses")
        spy = subprocess.Popen(
            [command, "record", "--pid", str(pid), *options, "--output", str(stacks)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield shares
        finally:
            # An interrupt makes it write what it has.
            spy.send_signal(signal.SIGINT)
            spy.wait()
        if stacks.exists():
            shares += summed_up(stacks.read_text().splitlines())


def summed_up(stacks: Iterable[str]) -> Shares:
    """The functions with the largest own shares, from lines of `outer;…;inner count`."""
    own: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        if any(name in stack for name in _WAITING):
            continue
        # Line numbers would split a function into many; files tell namesakes apart.
        frame = stack.rpartition(";")[2]
        function, _, place = frame.partition(" (")
        own[f"{function} ({place.partition(':')[0].rstrip(')')})"] += int(count)
    total = sum(own.values()) or 1
    return [(count / total, function) for function, count in own.most_common(_SHOWN)]
