"""The status pages of a running broker, served on an address of their own."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.config import BrokerConfig
from tidelog.host.host import Host
from tidelog.security.failure_delays import FailureDelays
from tidelog.server.addresses import page_names
from tidelog.server.cluster_status import ClusterStatus
from tidelog.server.configured import descriptor_shares
from tidelog.server.http import HttpServer
from tidelog.server.http_security import PageSecurity
from tidelog.server.pages import StatusPages
from tidelog.server.parts import Parts


async def serve_pages(
    parts: Parts, config: BrokerConfig, host: Host, is_ready: Callable[[], bool]
) -> HttpServer:
    """Begin to serve them at the address that the settings name."""
    address = config.metrics_listener
    assert address is not None, "no address for the pages"
    status = ClusterStatus(
        parts.membership, parts.metadata, parts.replicas, parts.fetchers, host.clock
    )
    pages = StatusPages(
        parts.frontend.metrics,
        parts.replicas,
        parts.mending,
        parts.groups,
        parts.fetch_sessions,
        parts.frontend.memory,
        status,
        parts.transactions,
        parts.requests.audit,
        is_ready,
    )
    security = PageSecurity(
        lambda: parts.replicas.config, parts.requests.audit, FailureDelays(host.clock)
    )
    limit = descriptor_shares(config).pages
    server = HttpServer(pages.routes, page_names(config, address[0]), limit, host, security)
    await server.start(*address)
    return server
