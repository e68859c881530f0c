"""The brokers of a run: processes that say what they do into files beside their data."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from tests.chaos.network import Network
from tests.e2e.broker_process import free_port
from tests.waiting import eventually
from tidelog.client.admin import describe_topic
from tidelog.client.blocking import Client

_PORT: Final = 9092
_METRICS_PORT: Final = 9093
_START_S: Final = 120.0
_STOP_S: Final = 120.0
_DUMP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    metrics_port: int


class Brokers:
    """Started and ended one by one; one that was killed stays away until `restart`."""

    def __init__(
        self, count: int, data: Path, settings: Mapping[str, str], store: str,
        network: Network | None = None,
    ) -> None:  # fmt: skip
        self.ids = range(count)
        self.network = network
        self._data = data
        self._settings = settings
        self._store = store
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        # How long its log was when a broker was last launched.
        self._launched_at = dict.fromkeys(self.ids, 0)
        self._addresses = [self._choose_address(each) for each in self.ids]
        data.mkdir(parents=True, exist_ok=True)

    def _choose_address(self, broker: int) -> Address:
        if self.network is None:
            return Address("127.0.0.1", free_port(), free_port())
        return Address(self.network.address(broker), _PORT, _METRICS_PORT)

    def server(self, broker: int) -> str:
        address = self._addresses[broker]
        return f"{address.host}:{address.port}"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(self.server, self.ids))

    def start(self) -> None:
        for broker in self.ids:
            self.launch(broker)
        for broker in self.ids:
            self.wait_serving(broker)

    def launch(self, broker: int) -> None:
        """Start one without waiting for it."""
        directory = self._data / str(broker)
        directory.mkdir(exist_ok=True)
        address = self._addresses[broker]
        command = [
            sys.executable, "-m", "tidelog", "broker", "--log-level", "info",
            "--node-id", str(broker), "--listen", self.server(broker),
            "--data-dir", str(directory), "--store", self._store,
            "--set", f"metrics.listener={address.host}:{address.metrics_port}",
            # Below `unshare` a broker's address is not loopback.
            "--set", "allow.plaintext.listeners=true",
        ]  # fmt: skip
        if self.network is not None:
            # Not `ip netns exec`, which would give each broker a list of mounts of its own as well.
            space = f"--net=/run/netns/{self.network.space(broker)}"
            command = ["nsenter", space, *command]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        # With the handler, SIGABRT has a broker that hangs say where.
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
        with self._log(broker).open("ab") as log:
            self._launched_at[broker] = log.tell()
            self._processes[broker] = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment
            )

    def wait_serving(self, broker: int) -> None:
        process = self._processes[broker]
        begun = f"tidelog broker {broker} on"

        def serves() -> bool:
            if begun in self._said_since_launch(broker):
                return True
            assert process.poll() is None, f"broker {broker} ended\n{self._last_words(broker)}"
            return False

        eventually(serves, lambda: self._why_not_serving(broker), _START_S)

    def _said_since_launch(self, broker: int) -> str:
        try:
            with self._log(broker).open("rb") as log:
                log.seek(self._launched_at[broker])
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _why_not_serving(self, broker: int) -> str:
        """What can be known of a broker that does not come up; it is ended for that."""
        process = self._processes[broker]
        known = [f"broker {broker}, process {process.pid}, does not serve after {_START_S:g} s"]
        if not self._log(broker).exists():
            known.append(f"{self._log(broker)} is gone: somebody removed the directory of the run")
        for name in ("status", "wchan", "stack"):
            try:
                known.append(f"{name}: {Path(f'/proc/{process.pid}/{name}').read_text()[:1000]}")
            except OSError as error:
                known.append(f"{name}: {error}")
        process.send_signal(signal.SIGABRT)
        try:
            process.wait(_DUMP_S)
        except subprocess.TimeoutExpired:
            known.append("it does not heed SIGABRT either")
        return "\n".join([*known, self._last_words(broker)])

    def _last_words(self, broker: int) -> str:
        """The end of what a broker has said since its launch, the stacks of its threads too."""
        return f"broker {broker} said:\n{self._said_since_launch(broker)[-16_000:]}"

    def is_running(self, broker: int) -> bool:
        process = self._processes.get(broker)
        return process is not None and process.poll() is None

    def stop(self, broker: int | None = None) -> None:
        """In order; without a broker all of them, at once."""
        ending = [
            process
            for each in (self.ids if broker is None else (broker,))
            if (process := self._processes.pop(each, None)) is not None
        ]
        for process in ending:
            process.send_signal(signal.SIGTERM)
        for process in ending:
            process.wait(_STOP_S)

    def kill(self, broker: int) -> None:
        """SIGKILL."""
        process = self._processes.pop(broker)
        process.kill()
        process.wait()

    def pid(self, broker: int) -> int:
        # In a namespace, too: the broker takes the place of the command that put it there.
        return self._processes[broker].pid

    def pause(self, broker: int) -> None:
        """SIGSTOP, until `resume`."""
        self._processes[broker].send_signal(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        self._processes[broker].send_signal(signal.SIGCONT)

    def restart(self, broker: int) -> None:
        """Start one that is down, or stop it first; it serves when this returns."""
        self.stop(broker)
        self.launch(broker)
        self.wait_serving(broker)

    def _log(self, broker: int) -> Path:
        return self._data / f"{broker}.log"

    def log_of(self, broker: int) -> str:
        """All that a broker ever said."""
        log = self._log(broker)
        return log.read_text(errors="replace") if log.exists() else ""

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition, -1 where none does."""
        with Client(self.bootstrap_servers) as client:
            described = client.run(describe_topic(client.cluster, topic))
        return described.partitions[partition].leader

    def metric(self, broker: int, name: str) -> float:
        """A gauge or counter without labels."""
        address = self._addresses[broker]
        with urlopen(f"http://{address.host}:{address.metrics_port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found, f"broker {broker} has no metric {name}"
        return float(found[1])
