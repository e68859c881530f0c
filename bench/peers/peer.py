"""What all brokers under test have in common: a directory, a port, a process, a clean end."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.peers.process import free_port, spawn, stop, wait_until_serving
from bench.topics import fresh_topic


class Peer(ABC):
    """One broker process on a free port of loopback, as a context manager.

    Without `data_dir` it lives in a temporary directory that goes with it; with one, the data stays
    and a later broker with the same directory (and `port`) carries on. `settings` are broker
    settings by Kafka's names.
    """

    name = "peer"
    stores = True  # what it acknowledged can be asked for
    brokers = replicas = 1

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        port: int | None = None,
    ) -> None:
        self._temporary = data_dir is None
        self._data_dir = None if data_dir is None else Path(data_dir).absolute()
        self._wanted_port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.settings = dict(settings or {})
        self.port = 0
        # Listeners besides the open one, by their security protocols; see `bench.peers.secured`.
        self.protocols: tuple[str, ...] = ()
        self._secured_ports: dict[str, int] = {}

    @abstractmethod
    def version(self) -> str:
        """The version of the broker, for reports."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line of the process; `prepare` came before."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @property
    def data_dir(self) -> Path:
        assert self._data_dir is not None, "not started"
        return self._data_dir

    @property
    def log_dir(self) -> Path:
        """The directory that holds ``<topic>-<partition>/``."""
        return self.data_dir / "logs"

    @property
    def output(self) -> Path:
        """Where the broker's own log lines go."""
        return self.data_dir / "broker.out"

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def listeners(self) -> str:
        """All listeners, as both brokers' settings take them."""
        ports = {"PLAINTEXT": self.port, **self._secured_ports}
        return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())

    def port_of(self, listener: str) -> int:
        return self.port if listener == "PLAINTEXT" else self._secured_ports[listener]

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    def start(self) -> Self:
        """Prepare the directory, start the process, and return when it answers."""
        self.prepare()
        self.launch()
        self.wait_until_serving()
        return self

    def prepare(self) -> None:
        """Everything that comes before the process: directory, port, files."""
        if self._data_dir is None:
            self._data_dir = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.port = self._wanted_port or free_port()
        self._secured_ports = {each: free_port() for each in self.protocols}

    def launch(self) -> None:
        """Start the process and return at once."""
        self._process = spawn(
            self.command(), str(self.output), env=self.environment(), cwd=self.data_dir
        )

    def wait_until_serving(self, timeout_s: float = 60.0) -> None:
        assert self._process is not None, "not launched"
        wait_until_serving(self.port, self._process, self.output_tail, timeout_s)

    def output_tail(self, lines: int = 40) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])

    def topic(self, partitions: int = 1) -> AbstractContextManager[str]:
        """A topic for one measurement."""
        return fresh_topic(self.bootstrap_servers, partitions, replicas=self.replicas)

    def stop(self) -> None:
        """Shut the broker down cleanly; its directory stays until the context ends."""
        if self._process is not None:
            stop(self._process)
            self._process = None

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self.stop()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self._temporary and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None
