"""Brokers in network namespaces of their own, on one bridge: a cable can be pulled for each.

Only root can make them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidelog.client.admin import describe_topic
from tidelog.client.blocking import Client

_BRIDGE: Final = "tidelog0"
# Of this machine on the bridge: where clients and the store are.
HOST: Final = "10.77.0.254"
_PORT: Final = 9092
_START_S: Final = 60.0


def can_isolate() -> bool:
    """Whether this user may make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    made = subprocess.run(["ip", "netns", "add", "tidelog-try"], capture_output=True, check=False)
    if made.returncode == 0:
        _ip("netns", "del", "tidelog-try")
    return made.returncode == 0


class IsolatedCluster:
    """As `tidelog.testing.Cluster`, each broker with an address of its own."""

    def __init__(
        self, brokers: int, *, data_dir: Path, settings: Mapping[str, str], store: str
    ) -> None:
        self._count = brokers
        self._data = data_dir
        self._settings = settings
        self._store = store
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._cuts: list[tuple[int, str]] = []

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{_address(each)}:{_PORT}" for each in range(self._count))

    def start(self) -> None:
        self._remove_network()
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{HOST}/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        for broker in range(self._count):
            space, cable = _space(broker), f"tidelog-b{broker}"
            _ip("netns", "add", space)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", cable, "master", _BRIDGE)
            _ip("link", "set", cable, "up")
            _ip("-n", space, "addr", "add", f"{_address(broker)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
        for broker in range(self._count):
            self._launch(broker)
        for broker in range(self._count):
            self._wait_serving(broker)

    def _launch(self, broker: int) -> None:
        directory = self._data / str(broker)
        directory.mkdir(parents=True, exist_ok=True)
        command = [
            "ip", "netns", "exec", _space(broker), sys.executable, "-m", "tidelog", "broker",
            "--node-id", str(broker), "--listen", f"{_address(broker)}:{_PORT}",
            "--data-dir", str(directory), "--store", self._store,
        ]  # fmt: skip
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with self._log(broker).open("ab") as log:
            self._processes[broker] = subprocess.Popen(command, stdout=log, stderr=log)

    def _wait_serving(self, broker: int) -> None:
        deadline = time.monotonic() + _START_S
        lines = self._log(broker)
        process = self._processes[broker]
        begun = f"tidelog broker {broker} on"
        while lines.read_text(errors="replace").count(begun) < self._starts(broker):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"broker {broker} does not serve\n{self.log_of(broker)}")
            time.sleep(0.05)

    def _starts(self, broker: int) -> int:
        counter = self._data / f"{broker}.starts"
        return int(counter.read_text()) if counter.exists() else 1

    def _log(self, broker: int) -> Path:
        return self._data / f"{broker}.log"

    def stop(self, broker: int | None = None) -> None:
        for each in range(self._count) if broker is None else (broker,):
            process = self._processes.pop(each, None)
            if process is not None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
        if broker is None:
            self._remove_network()

    def kill(self, broker: int) -> None:
        process = self._processes.pop(broker)
        process.kill()
        process.wait()

    def pause(self, broker: int) -> None:
        self._processes[broker].send_signal(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        self._processes[broker].send_signal(signal.SIGCONT)

    def restart(self, broker: int) -> None:
        self.stop(broker)
        (self._data / f"{broker}.starts").write_text(str(self._starts(broker) + 1))
        self._launch(broker)
        self._wait_serving(broker)

    def log_of(self, broker: int) -> str:
        return self._log(broker).read_text(errors="replace")[-8_000:]

    def leader_of(self, topic: str, partition: int = 0) -> int:
        with Client(self.bootstrap_servers) as client:
            described = client.run(describe_topic(client.cluster, topic))
        return described.partitions[partition].leader

    # -- cables -----------------------------------------------------------------------------------

    def cut(self, broker: int, peer: int | None) -> None:
        """Nothing goes between a broker and a peer, or with None the store and the clients."""
        target = HOST if peer is None else _address(peer)
        _ip("-n", _space(broker), "route", "add", "blackhole", f"{target}/32")
        self._cuts.append((broker, target))

    def heal(self) -> None:
        for broker, target in self._cuts:
            _ip("-n", _space(broker), "route", "del", "blackhole", f"{target}/32")
        self._cuts.clear()

    def _remove_network(self) -> None:
        for broker in range(self._count):
            for command in (
                ("netns", "del", _space(broker)),
                ("link", "del", f"tidelog-b{broker}"),
            ):
                with suppress(RuntimeError):
                    _ip(*command)
        with suppress(RuntimeError):
            _ip("link", "del", _BRIDGE)


def _space(broker: int) -> str:
    return f"tidelog-b{broker}"


def _address(broker: int) -> str:
    return f"10.77.0.{broker + 1}"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
