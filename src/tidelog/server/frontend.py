"""What listeners and their connections share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.host.clock import Clock
from tidelog.host.network import Network
from tidelog.host.offload import Offload
from tidelog.server.dispatch import Dispatcher
from tidelog.server.metrics import BrokerMetrics
from tidelog.server.outbox import ScratchBuffer
from tidelog.server.request_memory import RequestMemory
from tidelog.server.throttling import Throttling


class Limits(NamedTuple):
    """The bounds of a connection."""

    frame_bytes_max: int
    requests_in_flight_max: int
    connections_max: int
    connections_per_address_max: int
    connections_per_address: dict[str, int]
    connections_per_user_max: int
    idle_ms_max: int
    first_byte_ms_max: int
    frame_ms_max: int
    # -1 leaves a socket's buffer to the operating system.
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1

    def per_address(self, host: str) -> int:
        """How many connections one address may have."""
        return self.connections_per_address.get(host, self.connections_per_address_max)


@dataclass(slots=True)
class Frontend:
    """For all connections of a broker: their bounds, their memory, and who takes their requests.

    The bounds are replaced where settings change; nothing else is.
    """

    limits: Limits
    dispatcher: Dispatcher
    memory: RequestMemory
    scratch: ScratchBuffer
    clock: Clock
    offload: Offload
    network: Network
    metrics: BrokerMetrics
    throttling: Throttling
