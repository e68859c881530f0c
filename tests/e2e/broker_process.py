"""A broker as a real process, to be killed and started again on the same port and directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

START_SECONDS_MAX = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class BrokerProcess:
    """`tidelog broker` on a fixed port; what it says goes to a file beside its data."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self.log_path = Path(f"{data_dir}.log")
        self._settings = {"auto.create.topics.enable": "false", **(settings or {})}
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *arguments: str) -> BrokerProcess:
        command = [
            sys.executable, "-m", "tidelog", "broker", "--listen", self.bootstrap_servers,
            "--data-dir", str(self.data_dir), *arguments,
        ]  # fmt: skip
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            if self._process.poll() is not None:
                raise AssertionError(f"the broker did not start:\n{self.log_text()[-4000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                assert time.monotonic() < deadline, self.log_text()[-4000:]
                time.sleep(0.005)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=30)

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace")

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
