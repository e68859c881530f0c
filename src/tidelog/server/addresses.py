"""Where a broker listens, and under which addresses others reach it."""

from __future__ import annotations

from tidelog.cluster.image import Endpoint
from tidelog.config import BrokerConfig
from tidelog.server.connection_counts import ConnectionCounts
from tidelog.server.frontend import Frontend
from tidelog.server.listener import Listener, ListenerAddress
from tidelog.server.listener_security import security_of


def make_listeners(config: BrokerConfig, frontend: Frontend) -> list[Listener]:
    counts = ConnectionCounts()
    resolved = config.listeners
    return [
        Listener(
            ListenerAddress(each.name, each.host, each.port, resolved.advertised.get(each.name)),
            frontend,
            counts,
            security_of(each, config, frontend.clock, frontend.offload),
        )
        for each in resolved.opened
    ]


def endpoint_of(listener: Listener) -> Endpoint:
    if listener.address.advertised is not None:
        host, port = listener.address.advertised
        return Endpoint(listener.name, host, port or listener.port)
    return Endpoint(listener.name, reachable(listener.address.host), listener.port)


def reachable(host: str) -> str:
    """An address that a client on this machine can use for a wildcard one."""
    # Compared with, not bound to.
    loopbacks = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # nosec B104
    return loopbacks.get(host, host)


def page_names(config: BrokerConfig, host: str) -> set[str]:
    """The names under which the status pages may be asked for."""
    advertised = {host for host, _ in config.listeners.advertised.values()}
    return {host, *advertised, *config.get_list("metrics.hosts")}
