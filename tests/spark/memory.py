"""What the processes of a Spark application take while it runs: resident memory and time."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from pathlib import Path

import psutil

SAMPLES_EVERY_S = 0.1

JVM, DRIVER, WORKER, BROKER = "JVM", "driver's Python", "Python worker", "broker"


class Watch:
    """A context in which the largest process of each kind is known by its peak."""

    def __init__(self, driver: subprocess.Popen[bytes], broker_pid: int) -> None:
        self._driver = psutil.Process(driver.pid)
        self._broker = psutil.Process(broker_pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")
        self._cpu_seconds: dict[tuple[str, int], float] = {}
        self.peaks: Counter[str] = Counter()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLES_EVERY_S):
            for process in (self._broker, self._driver, *self._descendants()):
                try:
                    self._look_at(process)
                except psutil.NoSuchProcess:
                    continue

    def _look_at(self, process: psutil.Process) -> None:
        kind = self._kind(process)
        if kind is None:
            return
        self.peaks[kind] = max(self.peaks[kind], process.memory_info().rss)
        times = process.cpu_times()
        self._cpu_seconds[kind, process.pid] = times.user + times.system

    def _descendants(self) -> list[psutil.Process]:
        try:
            return self._driver.children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _kind(self, process: psutil.Process) -> str | None:
        if process == self._broker:
            return BROKER
        # Not by its name: what a JVM is about to start still has the name of a thread.
        program = Path(process.exe()).name
        if program == "java":
            return JVM
        if not program.startswith("python"):
            return None
        # The others plan, commit, or are the driver's side of a source.
        return WORKER if "pyspark.worker" in process.cmdline() else DRIVER

    def __str__(self) -> str:
        seconds: Counter[str] = Counter()
        for (kind, _), each in self._cpu_seconds.items():
            seconds[kind] += each
        return ", ".join(
            f"{kind} {peak >> 20} MiB ({seconds[kind]:.0f} s of CPU)"
            for kind, peak in sorted(self.peaks.items())
        )
