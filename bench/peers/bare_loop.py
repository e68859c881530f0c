"""A "broker" that only receives and writes: the limit that the operating system sets.

It is compiled from ``bare_loop.c`` when it is needed. So that real clients can talk to it, the
answers of a real broker are recorded once by a proxy between the two and played back.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bench.peers.peer import Peer
from bench.peers.process import free_port

PROGRAM = Path(__file__).with_name("bare_loop.c")
TOPIC = "bench-bare"

Answers = dict[tuple[int, int], bytes]


def available() -> bool:
    return shutil.which("cc") is not None


class BareLoop(Peer):
    """The compiled loop with recorded answers; see the module."""

    name = "bare"
    stores = False

    def __init__(self, answers: Answers, recorded_port: int) -> None:
        super().__init__()
        self._answers = answers
        self._recorded_port = recorded_port

    def version(self) -> str:
        return "C, recv and write"

    def prepare(self) -> None:
        super().prepare()
        program = self.data_dir / "bare_loop"
        subprocess.run(["cc", "-O2", "-o", str(program), str(PROGRAM)], check=True)
        with open(self.data_dir / "answers", "wb") as file:
            for (key, version), answer in self._answers.items():
                answer = with_port(answer, self._recorded_port, self.port)
                file.write(struct.pack(">hhi", key, version, len(answer)) + answer)

    def command(self) -> list[str]:
        files = (str(self.data_dir / name) for name in ("answers", "output"))
        return [str(self.data_dir / "bare_loop"), str(self.port), *files]

    @contextlib.contextmanager
    def topic(self, partitions: int = 1) -> Iterator[str]:
        assert partitions == 1, "one partition was recorded"
        yield TOPIC

    def wait_until_serving(self, timeout_s: float = 60.0) -> None:
        """It listens almost at once; what it knows of Metadata depends on what was recorded."""
        for _ in range(int(timeout_s * 1000)):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            threading.Event().wait(0.001)
        raise TimeoutError(self.output_tail())


def with_port(answer: bytes, old: int, new: int) -> bytes:
    """The answer with one address of loopback in place of another, as Metadata holds them."""
    return answer.replace(
        b"127.0.0.1" + struct.pack(">i", old), b"127.0.0.1" + struct.pack(">i", new)
    )


class Recorder:
    """A proxy in front of a broker that remembers the last answer of each API and version."""

    def __init__(self, broker_port: int) -> None:
        self.answers: Answers = {}
        self.port = free_port()
        self._broker_port = broker_port
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Recorder:
        self._threads[0].start()
        return self

    def __exit__(self, *_error: object) -> None:
        # A shutdown, unlike a close, wakes the threads that wait in accept and recv.
        for each in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._broker_port))
            self._sockets += [client, broker]
            thread = threading.Thread(target=self._relay, args=(client, broker), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _relay(self, client: socket.socket, broker: socket.socket) -> None:
        """One request, its answer, the next request: slow, and in order."""
        with contextlib.suppress(OSError, struct.error):
            requests, answers = client.makefile("rb"), broker.makefile("rb")
            while True:
                request = _read_frame(requests)
                broker.sendall(request)
                answer = _read_frame(answers)
                key, version = struct.unpack_from(">hh", request, 4)
                self.answers[key, version] = answer[8:]
                client.sendall(with_port(answer, self._broker_port, self.port))
        client.close()
        broker.close()


def _read_frame(reader: BinaryIO) -> bytes:
    prefix = reader.read(4)
    (size,) = struct.unpack(">i", prefix)
    return prefix + reader.read(size)
