"""What is read from the operating system: a broker's processor time and memory, and the machine."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CpuSeconds:
    """Processor time of a process and its children, all threads, since they began."""

    user: float
    system: float

    @property
    def total(self) -> float:
        return self.user + self.system

    def __sub__(self, earlier: CpuSeconds) -> CpuSeconds:
        return CpuSeconds(self.user - earlier.user, self.system - earlier.system)


def cpu_seconds(pid: int) -> CpuSeconds:
    user = system = 0
    for each in family(pid):
        # The command in parentheses may hold spaces: fields are counted from the last one.
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        user += int(fields[11])
        system += int(fields[12])
    return CpuSeconds(user / _TICKS_PER_S, system / _TICKS_PER_S)


def family(pid: int) -> list[int]:
    """A process and all that descend from it: the brokers of a cluster have one parent."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def cpu_ns(pid: int) -> int:
    """Processor time of all threads that a process has now, for spans too short for ticks."""
    found = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in found)


class Stopwatch:
    """Wall-clock time and a broker's processor time, from construction to `result`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu, self._start = cpu_seconds(pid), time.perf_counter()

    def result(self, **counts: float) -> dict[str, float]:
        """What passed, together with what was done in it."""
        elapsed_s, used = time.perf_counter() - self._start, cpu_seconds(self._pid) - self._cpu
        times = {"elapsed_s": elapsed_s, "cpu_user_s": used.user, "cpu_system_s": used.system}
        return {**times, **counts}


def resident_mb(pid: int) -> float:
    """Resident memory of a process and its children in MB (10**6 bytes)."""
    total = 0
    for each in family(pid):
        match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{each}/status").read_text())
        assert match is not None
        total += int(match[1])
    return total * 1024 / 1e6


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several rounds with the lowest and the highest."""

    median: float
    low: float
    high: float
    rounds: int


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values), len(values))


def percentile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that `fraction` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


def cpu_busy_seconds() -> float:
    """Processor time of all processes and of the kernel since the machine began."""
    line = Path("/proc/stat").read_text().split("\n", 1)[0]
    user, nice, system, _idle, _waiting, irq, softirq = (int(n) for n in line.split()[1:8])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def machine() -> dict[str, str]:
    """What the figures were taken on, in words."""
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{int(memory[1]) / 2**20:.0f} GiB" if memory else "unknown",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": java.splitlines()[0] if java else "none",
        "librdkafka": _librdkafka(),
        "uvloop": version("uvloop"),
    }


def _librdkafka() -> str:
    script = (
        "import confluent_kafka as c; print(c.libversion()[0], 'by confluent-kafka', c.version())"
    )
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.strip()


def load_average() -> float:
    """The load of one minute: above a fraction of a core before a run, others are at work."""
    return os.getloadavg()[0]
