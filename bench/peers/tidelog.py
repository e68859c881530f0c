"""One Tidelog broker as a process of its own, started as a user starts it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from bench.peers.peer import Peer

ROOT = Path(__file__).resolve().parents[2]

_VERSION = """
from tidelog import _kernels, version
print(version.VERSION, "with kernels", "compiled" if _kernels.COMPILED else "not compiled")
"""


def environment() -> dict[str, str]:
    """An environment in which ``python -m tidelog`` works, also in a checkout not installed.

    What is installed goes first: the source tree may lack the compiled kernels.
    """
    if importlib.util.find_spec("tidelog") is not None:
        return dict(os.environ)
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}


class TidelogBroker(Peer):
    """``tidelog broker`` on a free port of loopback."""

    name = "tidelog"

    def version(self) -> str:
        command = [sys.executable, "-c", _VERSION]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=self.environment()
        )
        return done.stdout.strip()

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "tidelog", "broker", "--data-dir", str(self.log_dir)]
        if self.protocols:
            return [*command, "--config", str(self._settings_file())]
        command += ["--listen", self.bootstrap_servers]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def _settings_file(self) -> Path:
        """A file, since passwords are not taken from the command line."""
        path = self.data_dir / "broker.properties"
        settings = {"listeners": self.listeners, **self.settings}
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def environment(self) -> dict[str, str]:
        return environment()
