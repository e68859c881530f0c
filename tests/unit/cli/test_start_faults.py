"""What `tidelog up` says when it cannot start: the doctor's sentence and hint, at once."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path


def refused(*options: str) -> list[str]:
    command = [sys.executable, "-m", "tidelog", "up", "--log-level", "error", *options]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    return done.stderr.decode().splitlines()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused("--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path))
    assert said[0] == f"error: Port {port} on 127.0.0.1 is taken by another process."
    assert said[1].startswith("hint: stop it (`ss -ltnp")


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = refused("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "file"))
    assert said[0] == f"error: {tmp_path / 'file'} is not a directory."
    assert said[1].startswith("hint: move it away")
