"""The brokers of the demo: `tidelog up --brokers N` as one program, and the processes below it."""

from __future__ import annotations

import re
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from examples.processes import Failure, Program

START_SECONDS = 60.0


class LocalCluster(Program):
    """`servers` is the list that clients are given, once it is up."""

    def __init__(self, directory: Path, brokers: int) -> None:
        arguments = ["tidelog", "up", "--brokers", str(brokers), "--listen", "127.0.0.1:0"]
        super().__init__("brokers", [*arguments, "--data-dir", str(directory / "data")], directory)
        self.servers = ""

    def start_and_wait(self) -> str:
        """Start it; its list of brokers, once every one serves."""
        self.start()
        self.wait_until(self._is_up, "the brokers", START_SECONDS)
        return self.servers

    def _is_up(self) -> bool:
        found = re.search(r"tidelog is up on (\S+)\s", self.said)
        self.servers = found[1] if found else ""
        return found is not None

    def pid_of(self, broker: int) -> int:
        """The process of one broker: the child that has its id on the command line."""
        for child in psutil.Process(self.pid).children():
            words = child.cmdline()
            if "--node-id" in words and words[words.index("--node-id") + 1] == str(broker):
                return int(child.pid)
        raise Failure(f"broker {broker} does not run")
