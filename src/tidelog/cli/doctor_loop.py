"""The doctor's look at a broker's event loop: how much of one core it uses, from its metrics."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.cli.finding import Finding, fault, well

_NAME: Final = "event loop"
_WATCHED_SECONDS: Final = 2.0
_LIMIT: Final = 0.85
# A loop that has its processor for itself comes to its timer within a millisecond.
_LATE_SECONDS: Final = 0.01
_PAGE_BYTES_MAX: Final = 64 << 20
_SAMPLE: Final = re.compile(rb"^(tidelog_loop_[a-z_]+) ([0-9.e+-]+)$", re.MULTILINE)


@dataclass(slots=True, frozen=True)
class Sample:
    """What /metrics said of the loop, and when."""

    at: float
    cpu_seconds: float
    late_seconds: float
    heartbeats: float


def examine(address: str, timeout_s: float, wait: Callable[[float], None] = time.sleep) -> Finding:
    """Watch the loop of the broker whose metrics are at `address` for two seconds."""
    try:
        before = sample(address, timeout_s)
        wait(_WATCHED_SECONDS)
        after = sample(address, timeout_s)
    except (OSError, ValueError) as error:
        return fault(
            _NAME,
            f"The metrics at {address} cannot be read: {error}.",
            "start the broker with --metrics HOST:PORT, and name the same one here",
        )
    return judge(before, after)


def sample(address: str, timeout_s: float) -> Sample:
    """Ask for /metrics; OSError where there are none, ValueError where they are not a broker's."""
    from http.client import HTTPConnection, HTTPException

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError("it is not of the form HOST:PORT")
    connection = HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        page = answer.read(_PAGE_BYTES_MAX)
    except HTTPException as error:
        raise ValueError(f"it does not speak HTTP ({error!r})") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"HTTP status {answer.status}")
    found = {name.decode(): float(value) for name, value in _SAMPLE.findall(page)}
    try:
        return Sample(
            time.monotonic(),
            found["tidelog_loop_cpu_seconds_total"],
            found["tidelog_loop_stall_seconds_sum"],
            found["tidelog_loop_stall_seconds_count"],
        )
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]}; is it a Tidelog broker?") from error


def judge(before: Sample, after: Sample) -> Finding:
    """Is the loop the limit, or kept from running?"""
    seconds = after.at - before.at
    share = max(0.0, after.cpu_seconds - before.cpu_seconds) / seconds
    heartbeats = after.heartbeats - before.heartbeats
    late_s = (after.late_seconds - before.late_seconds) / heartbeats if heartbeats > 0 else 0.0
    used = f"{share:.0%} of a core in {seconds:.1f} s"
    if share >= _LIMIT:
        return fault(
            _NAME,
            f"The broker's event loop used {used}: it is the limit.",
            "let the machine run more brokers (`tidelog up --brokers 4`) and give topics several "
            "partitions; larger batches (linger.ms=5) cost a broker less for each record",
        )
    if late_s > _LATE_SECONDS:
        return fault(
            _NAME,
            f"The broker's event loop used only {used}, but came {late_s * 1000:.0f} ms late to "
            "its timer on average.",
            "others use its processor or its disk: look at the machine's load",
        )
    return well(_NAME, f"The broker's event loop used {used}: there is room.")
