"""``python -m tests.chaos.floods``: a hostile client floods a broker, and a good one goes on.

One broker, a process of its own, with a PLAINTEXT, a SASL_PLAINTEXT and an SSL listener. Meanwhile
a good client writes records, one after the other. In turn:

- **slow**: thousands of sockets that send nothing, half a frame, half a TLS hello, or a frame byte
  by byte; each is opened again once the broker has closed it. The broker must close every one.
- **crowd**: more connections at once than `max.connections`: so many are served, the rest refused.
- **guesses**: passwords tried over many connections of one address. No more than ten a second may
  be looked at, and a user at another address logs in meanwhile, every time.
- **producer ids**: InitProducerId, a million times: all are different.

After each, descriptors must be back and the memory must be within a bound. The medians of the good
client are printed, and not judged: other work on the machine is in them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

from scripts.guardian import guard
from tests.e2e.broker_process import free_port
from tests.e2e.produce_requests import batch, create_topic, produce
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.protocol.apis import api
from tidelog.protocol.framing import decode_response, encode_request
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tidelog.testing.certificates import Authority

MIB: Final = 1 << 20
# What a connection may cost, with its buffers, its objects and what the allocator keeps of them.
CONNECTION_BYTES_MAX: Final = 64 * 1024
SLACK_BYTES: Final = 32 * MIB
GUESSED_FROM, GOOD_FROM = "127.0.0.3", "127.0.0.2"
_PASSWORD: Final = "right-5ecret"
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
# Enough for a median; a few seconds beside other work.
_RECORDS_OF_A_MEDIAN: Final = 200


class Flooded:
    """The broker, and what it uses."""

    def __init__(self, directory: Path, connections_max: int) -> None:
        self.ports = {name: free_port() for name in ("PLAINTEXT", "SASL_PLAINTEXT", "SSL")}
        self.log = directory / "log"
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        authority = Authority()
        settings = {
            "listeners": listeners,
            "log.dirs": str(directory / "data"),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{_MODULE} required user_alice="{_PASSWORD}";'
            ),
            "ssl.keystore.location": authority.issue().write(directory / "broker.pem"),
            "max.connections": str(connections_max),
            "socket.listen.backlog.size": "4096",
        }
        file = directory / "broker.properties"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [sys.executable, "-m", "tidelog", "broker", "--config", str(file)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(lambda: b"started node_id" in self.log.read_bytes(), self.log.read_text, 60.0)

    def resident_bytes(self) -> int:
        text = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(text.split()[1]) * resource.getpagesize()

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()[-2000:]
        assert "Traceback" not in self.log.read_text()


class GoodClient:
    """Writes a record after the other, and knows how long each took."""

    def __init__(self, port: int) -> None:
        self._client = RawClient(f"127.0.0.1:{port}")
        create_topic(self._client, "good")
        self._records = batch([b"x" * 1024])
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._seconds: list[float] = []
        self.failures = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.005):
            began = time.perf_counter()
            answer = self._client.call("Produce", 9, produce("good", self._records))
            self._seconds.append(time.perf_counter() - began)
            self.failures += answer.responses[0].partition_responses[0].error_code != 0

    @property
    def records(self) -> int:
        """How many since the median was asked for last."""
        return len(self._seconds)

    def median_ms(self) -> float:
        """Of the records since this was asked last."""
        taken, self._seconds = self._seconds, []
        return statistics.median(taken) * 1000 if taken else float("nan")

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._client.close()


class Trial:
    """One flood after the other, and what each came to."""

    def __init__(self, broker: Flooded, good: GoodClient) -> None:
        self._broker = broker
        self._good = good
        eventually(lambda: good.records >= _RECORDS_OF_A_MEDIAN)
        self._quiet_ms = good.median_ms()

    @contextlib.contextmanager
    def watched(self, name: str, bytes_max: int) -> Iterator[Counter[str]]:
        """Judge what a flood leaves: descriptors, memory, and a client that was served."""
        broker, counts = self._broker, Counter[str]()
        descriptors, resident = broker.descriptors(), broker.resident_bytes()
        peak, is_over = [resident], threading.Event()

        def look() -> None:
            while not is_over.wait(0.1):
                peak.append(max(peak.pop(), broker.resident_bytes()))

        looking = threading.Thread(target=look)
        looking.start()
        began = time.monotonic()
        try:
            yield counts
        finally:
            is_over.set()
            looking.join()
        seconds = time.monotonic() - began
        eventually(lambda: broker.descriptors() <= descriptors + 8, broker.log.read_text, 60.0)
        during, grown = self._good.median_ms(), peak[0] - resident
        assert grown <= bytes_max, f"{name}: {grown >> 20} MiB more, of {bytes_max >> 20}"
        assert self._good.failures == 0
        said = ", ".join(f"{count} {what}" for what, count in counts.items())
        print(
            f"{name}: {said}, in {seconds:.0f} s; {grown / MIB:.1f} MiB more of"
            f" {bytes_max >> 20} allowed; a good client's median {during:.2f} ms,"
            f" {self._quiet_ms:.2f} ms before",
            flush=True,
        )


def frame(name: str, version: int, message: Any, correlation: int = 1) -> bytes:
    parts = encode_request(api(name), version, correlation, "flood", message)
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def connected(
    port: int, address: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader, name: str, version: int) -> Any:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return decode_response(api(name), version, await reader.readexactly(size))[1]


# ---- slow -----------------------------------------------------------------------------------

_HALF_HELLO: Final = bytes.fromhex("160301020001")
_KINDS: Final = ("silent", "half a frame", "half a hello", "byte by byte")


async def slow_socket(ports: dict[str, int], number: int, until: float) -> Counter[str]:
    """Be slow in one way, and again, until the time is over; how often the broker closed it."""
    kind = _KINDS[number % 4]
    port = ports["SSL" if kind == "half a hello" else "SASL_PLAINTEXT"]
    counts: Counter[str] = Counter()
    while time.monotonic() < until:
        async with connected(port, f"127.0.1.{1 + number % 100}") as (reader, writer):
            counts["slow sockets"] += 1
            if kind == "half a frame":
                writer.write(frame("SaslHandshake", 1, SaslHandshakeRequest("PLAIN"))[:9])
            elif kind == "half a hello":
                writer.write(_HALF_HELLO)
            counts["of them closed by the broker"] += await until_closed(reader, writer, kind)
    return counts


async def until_closed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str
) -> bool:
    sent = iter(frame("SaslHandshake", 1, SaslHandshakeRequest("PLAIN" * 1000)))
    with contextlib.suppress(ConnectionError):
        while True:
            if kind == "byte by byte":
                writer.write(bytes([next(sent)]))
            try:
                async with asyncio.timeout(0.5 if kind == "byte by byte" else 120):
                    # An answer to a part of a request would be a fault.
                    return await reader.read(1) == b""
            except TimeoutError:
                if kind != "byte by byte":
                    return False
    return True


async def slow(broker: Flooded, trial: Trial, sockets: int, seconds: float) -> None:
    with trial.watched("slow", sockets * CONNECTION_BYTES_MAX + SLACK_BYTES) as counts:
        until = time.monotonic() + seconds
        done = await asyncio.gather(
            *(slow_socket(broker.ports, number, until) for number in range(sockets))
        )
        for each in done:
            counts.update(each)
        assert counts["slow sockets"] >= sockets
        assert counts["of them closed by the broker"] == counts["slow sockets"]


# ---- crowd ----------------------------------------------------------------------------------


async def crowd(broker: Flooded, trial: Trial, sockets: int, connections_max: int) -> None:
    served, over = asyncio.Semaphore(0), asyncio.Event()

    async def one(number: int) -> str:
        address = f"127.0.2.{1 + number % 5}"
        try:
            async with connected(broker.ports["PLAINTEXT"], address) as (reader, writer):
                try:
                    writer.write(frame("ApiVersions", 2, ApiVersionsRequest()))
                    assert (await answer(reader, "ApiVersions", 2)).error_code == 0
                except (asyncio.IncompleteReadError, ConnectionError):
                    return "refused"
                finally:
                    served.release()
                await over.wait()
                return "served"
        except ConnectionError:
            served.release()
            return "refused"

    bound = connections_max * CONNECTION_BYTES_MAX + SLACK_BYTES
    with trial.watched("crowd", bound) as counts:
        tasks = [asyncio.create_task(one(number)) for number in range(sockets)]
        for _ in range(sockets):
            await served.acquire()
        over.set()
        counts.update(await asyncio.gather(*tasks))
        assert counts.total() == sockets
        # The good client has one of them, and some of the flood before may be on their way out.
        assert connections_max - 10 <= counts["served"] < connections_max, counts


# ---- guesses --------------------------------------------------------------------------------


async def log_in(port: int, address: str, password: str) -> Any:
    async with connected(port, address) as (reader, writer):
        writer.write(frame("SaslHandshake", 1, SaslHandshakeRequest("PLAIN")))
        assert (await answer(reader, "SaslHandshake", 1)).error_code == 0
        token = f"\0alice\0{password}".encode()
        writer.write(frame("SaslAuthenticate", 1, SaslAuthenticateRequest(token)))
        return await answer(reader, "SaslAuthenticate", 1)


async def guess(broker: Flooded, trial: Trial, guesses: int, at_once: int) -> None:
    port = broker.ports["SASL_PLAINTEXT"]
    room = asyncio.Semaphore(at_once)

    async def one(number: int) -> str:
        async with room:
            refused = await log_in(port, GUESSED_FROM, f"guess-{number}")
        assert refused.error_code != 0
        return "not looked at" if "Too many log-ins" in refused.error_message else "wrong"

    with trial.watched("guesses", at_once * CONNECTION_BYTES_MAX + SLACK_BYTES) as counts:
        began = time.monotonic()
        tasks = [asyncio.create_task(one(number)) for number in range(guesses)]
        while not all(task.done() for task in tasks):
            right = await log_in(port, GOOD_FROM, _PASSWORD)
            assert right.error_code == 0, right.error_message
            counts["good log-ins meanwhile"] += 1
            await asyncio.sleep(0.2)
        counts.update(task.result() for task in tasks)
        # Fifty may wait for their answers from the beginning.
        assert counts["wrong"] <= 50 + 10 * (time.monotonic() - began)
        assert counts["wrong"] + counts["not looked at"] == guesses


# ---- producer ids ---------------------------------------------------------------------------


async def producer_ids(broker: Flooded, trial: Trial, wanted: int, at_once: int = 200) -> None:
    request = frame("InitProducerId", 4, InitProducerIdRequest(None, 60_000))
    seen: set[int] = set()

    async def some(count: int) -> None:
        async with connected(broker.ports["PLAINTEXT"]) as (reader, writer):
            for _ in range(0, count, at_once):
                writer.write(request * at_once)
                for _ in range(at_once):
                    given = await answer(reader, "InitProducerId", 4)
                    assert given.error_code == 0
                    seen.add(given.producer_id)

    with trial.watched("producer ids", SLACK_BYTES) as counts:
        await asyncio.gather(*(some(wanted // 4) for _ in range(4)))
        counts["ids, all different"] = len(seen)
        assert len(seen) == wanted // 4 // at_once * at_once * 4


# ---- the whole ------------------------------------------------------------------------------


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.floods", description=__doc__)
    parser.add_argument("--slow", type=int, default=2_000)
    parser.add_argument("--slow-seconds", type=float, default=60.0)
    parser.add_argument("--crowd", type=int, default=5_000)
    parser.add_argument("--guesses", type=int, default=1_000)
    parser.add_argument("--at-once", type=int, default=300, help="guesses under way")
    parser.add_argument("--producer-ids", type=int, default=1_000_000)
    return parser.parse_args(arguments)


def raise_descriptor_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        assert hard == resource.RLIM_INFINITY or hard >= wanted, f"ulimit -n is {hard} at most"
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_max(options: argparse.Namespace) -> int:
    """Room for the slow ones, and not for the whole crowd."""
    return int(max(options.slow + 100, options.crowd * 4 // 5))


async def flood(options: argparse.Namespace, broker: Flooded, good: GoodClient) -> None:
    trial = Trial(broker, good)
    await slow(broker, trial, options.slow, options.slow_seconds)
    await crowd(broker, trial, options.crowd, connections_max(options))
    await guess(broker, trial, options.guesses, options.at_once)
    await producer_ids(broker, trial, options.producer_ids)


def run(options: argparse.Namespace) -> None:
    raise_descriptor_limit(2 * (options.slow + options.crowd) + 1_000)
    with tempfile.TemporaryDirectory(prefix="tidelog-floods-") as directory:
        broker = Flooded(Path(directory), connections_max(options))
        try:
            good = GoodClient(broker.ports["PLAINTEXT"])
            try:
                asyncio.run(flood(options, broker, good))
            finally:
                good.close()
            broker.stop()
        finally:
            if broker.process.poll() is None:
                broker.process.kill()
                broker.process.wait()
    print("the broker served throughout and stopped in order")


if __name__ == "__main__":
    guard()
    run(parse())
