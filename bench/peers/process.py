"""Small helpers to start a broker as a child process and to know when it truly serves.

A child stays in our process group, so that what ends the group ends it too, and whatever is still
alive when the interpreter ends is killed by the exit hook.
"""

from __future__ import annotations

import atexit
import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Callable

_alive: set[subprocess.Popen[bytes]] = set()

# Header v1 (api key, version, correlation id, null client id), then the body: Metadata v1 with an
# empty topic array asks for the brokers alone.
_METADATA_V1 = struct.pack(">hhihi", 3, 1, 1, -1, 0)


def free_port() -> int:
    """A TCP port on loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn(command: list[str], log_path: str, **options: object) -> subprocess.Popen[bytes]:
    """Start `command` with its output in `log_path`; see `stop`."""
    with open(log_path, "ab") as log:
        process = subprocess.Popen(  # type: ignore[call-overload]
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **options
        )
    _alive.add(process)
    return process  # type: ignore[no-any-return]


def stop(process: subprocess.Popen[bytes], timeout_s: float = 30.0) -> int:
    """Ask the process to end, make it end after `timeout_s`, and return its exit code."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    finally:
        _alive.discard(process)


@atexit.register
def _kill_what_is_left() -> None:
    for process in list(_alive):
        process.kill()
        process.wait()


def broker_count(port: int, timeout_s: float = 1.0) -> int:
    """How many brokers the one on `port` reports in a Metadata answer; OSError if it has none."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(_METADATA_V1)) + _METADATA_V1)
        answer = connection.makefile("rb")
        prefix = answer.read(4)
        if len(prefix) < 4:
            raise ConnectionResetError("closed before answering")
        (size,) = struct.unpack(">i", prefix)
        frame = answer.read(size)
        if len(frame) < 8:
            raise ConnectionResetError("closed within the answer")
        return int(struct.unpack_from(">i", frame, 4)[0])


def wait_until_serving(
    port: int, process: subprocess.Popen[bytes], describe: Callable[[], str], timeout_s: float
) -> None:
    """Return once the broker on `port` names itself in a Metadata answer."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"ended with {process.returncode} while starting:\n{describe()}")
        with contextlib.suppress(OSError):
            if broker_count(port) >= 1:
                return
        time.sleep(0.01)
    raise TimeoutError(f"does not serve after {timeout_s:.0f} s:\n{describe()}")
