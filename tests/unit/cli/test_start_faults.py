"""What `tidelog up` says when it cannot start: the doctor's sentence and hint, at once."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path


def refused(*options: str, code: int = 1) -> list[str]:
    command = [sys.executable, "-m", "tidelog", "up", "--log-level", "error", *options]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == code
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


def test_an_address_for_one_of_several_listeners_is_refused(tmp_path: Path) -> None:
    listeners = "listeners=SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
    options = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--set", listeners)
    said = refused(*options, code=2)
    assert "there are several listeners, SSL, PLAINTEXT; give their addresses" in said[-2]


def test_a_password_file_that_is_not_there(tmp_path: Path) -> None:
    options = ("--bootstrap-user", "admin", "--bootstrap-password-file", str(tmp_path / "none"))
    said = refused(*options, "--data-dir", str(tmp_path / "data"), code=2)
    assert said[-2].endswith("none: No such file or directory")
