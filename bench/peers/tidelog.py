"""One Tidelog broker as a process of its own, started as a user starts it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from bench.peers.peer import Peer

SOURCE = Path(__file__).resolve().parents[2] / "src"


class TidelogBroker(Peer):
    """``tidelog broker`` on a free port of loopback."""

    name = "tidelog"

    def version(self) -> str:
        text = (SOURCE / "tidelog" / "version.py").read_text()
        match = re.search(r'VERSION\b.*"(.+)"', text)
        return match[1] if match else "unknown"

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "tidelog", "broker", "--listen", self.bootstrap_servers]
        command += ["--data-dir", str(self.log_dir)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def environment(self) -> dict[str, str]:
        # A checkout that is not installed works as well.
        path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
        return {**os.environ, "PYTHONPATH": path}
