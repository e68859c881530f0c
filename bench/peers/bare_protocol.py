"""A "broker" that is uvloop and one `pwrite` for each produce: the limit that Python sets.

It takes the recorded answers of ``bare_loop``, as a process of its own. Nothing is checked, nothing
is kept but a position in the file: what a broker in Python costs beyond this is its own code.

usage: python -m bench.peers.bare_protocol PORT ANSWERS OUTPUT
"""

from __future__ import annotations

import asyncio
import os
import resource
import struct
import sys
from collections.abc import Mapping
from typing import cast

import uvloop

from bench.peers.bare_loop import BareLoop
from bench.peers.tidelog import ROOT

# Length, API key, version and correlation id of a request.
_HEAD = struct.Struct(">ihhi")
# The file is started over at this size, so that a long run does not fill the disk.
_OUTPUT_BYTES_MAX = 1 << 30


class BareProtocol(BareLoop):
    """The same bytes in and out as the bare loop in C, in the language and loop of our broker."""

    name = "uvloop"

    def version(self) -> str:
        return f"{uvloop.__version__}, receive and pwrite"

    def command(self) -> list[str]:
        files = (str(self.data_dir / name) for name in ("answers", "output"))
        return [sys.executable, "-m", "bench.peers.bare_protocol", str(self.port), *files]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": str(ROOT)}


class Output:
    """The file that takes every produce."""

    __slots__ = ("fd", "position")

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self.position = 0

    def write(self, data: bytes) -> None:
        if self.position > _OUTPUT_BYTES_MAX:
            os.ftruncate(self.fd, 0)
            self.position = 0
        self.position += os.pwrite(self.fd, data, self.position)


class Bare(asyncio.Protocol):
    """A connection: whole frames in, recorded answers out."""

    def __init__(self, answers: Mapping[tuple[int, int], bytes], output: Output) -> None:
        self._answers = answers
        self._output = output
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        position, end = 0, len(received)
        while end - position >= _HEAD.size:
            size, key, version, correlation_id = _HEAD.unpack_from(received, position)
            if end - position < 4 + size:
                break
            if key == 0:
                self._output.write(received[position : position + 4 + size])
            answer = self._answers[key, version]
            self._transport.write(struct.pack(">ii", 4 + len(answer), correlation_id) + answer)
            position += 4 + size
        self._received = received[position:]


def read_answers(path: str) -> dict[tuple[int, int], bytes]:
    """The recorded answers, each without length and correlation id."""
    answers = {}
    with open(path, "rb") as file:
        while head := file.read(8):
            key, version, size = struct.unpack(">hhi", head)
            answers[key, version] = file.read(size)
    return answers


async def _serve(port: int, answers: str, output: str) -> None:
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    recorded, file = read_answers(answers), Output(output)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Bare(recorded, file), "127.0.0.1", port, backlog=1_024
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
