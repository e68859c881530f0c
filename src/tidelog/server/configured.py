"""What the settings say about the parts that a broker is built of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.cluster.image_feed import ImageFeed
from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.host.clock import Clock
from tidelog.security.authorizer import Authorizer, OpenAuthorizer, listed_principals
from tidelog.security.quotas import Windows
from tidelog.server.descriptors import DescriptorShares, descriptor_limit, share_out
from tidelog.server.fetch_sessions import SessionLimits
from tidelog.server.frontend import Limits
from tidelog.server.metrics import BrokerMetrics
from tidelog.server.throttling import QuotaWindows, Throttling

if TYPE_CHECKING:
    from tidelog.security.acl_authorizer import Acls


def session_limits(config: BrokerConfig) -> SessionLimits:
    return SessionLimits(
        config.get_int("max.incremental.fetch.session.cache.slots"),
        config.get_int("fetch.session.partitions.max"),
        config.get_int("fetch.sessions.max.bytes"),
    )


def connection_limits(config: BrokerConfig) -> Limits:
    return Limits(
        frame_bytes_max=config.get_int("socket.request.max.bytes"),
        requests_in_flight_max=config.get_int("connections.max.inflight.requests"),
        connections_max=min(config.get_int("max.connections"), descriptor_shares(config).clients),
        connections_per_address_max=config.get_int("max.connections.per.ip"),
        connections_per_address=config.connections_per_host,
        connections_per_user_max=config.get_int("max.connections.per.user"),
        idle_ms_max=config.get_int("connections.max.idle.ms"),
        first_byte_ms_max=config.get_int("connections.first.byte.ms"),
        frame_ms_max=config.get_int("connections.frame.timeout.ms"),
        send_buffer_bytes=config.get_int("socket.send.buffer.bytes"),
        receive_buffer_bytes=config.get_int("socket.receive.buffer.bytes"),
    )


def descriptor_shares(config: BrokerConfig) -> DescriptorShares:
    return share_out(descriptor_limit(), config.get_int("open.files.max"))


def make_throttling(
    config: BrokerConfig, clock: Clock, metadata: ImageFeed, metrics: BrokerMetrics
) -> Throttling:
    """What holds clients to the quotas in the metadata."""
    windows = QuotaWindows(
        Windows(
            config.get_int("quota.window.num"),
            config.get_int("quota.window.size.seconds") * 1000,
        ),
        Windows(
            config.get_int("controller.quota.window.num"),
            config.get_int("controller.quota.window.size.seconds") * 1000,
        ),
    )
    throttling = Throttling(clock, windows)
    metadata.subscribe(lambda _, image, __: throttling.follow(image.client_quotas))
    metrics.more.append(throttling.lines)
    return throttling


def authorizer_of(config: BrokerConfig, acls: Callable[[], Acls]) -> Authorizer:
    """The authorizer that the settings name; without one everybody may do everything."""
    if not config.get_str("authorizer.class.name"):
        return OpenAuthorizer()
    from tidelog.security.acl_authorizer import AclAuthorizer

    return AclAuthorizer(
        acls,
        listed_principals(config.get_str("super.users")),
        allow_without_acl=config.get_bool("allow.everyone.if.no.acl.found"),
    )


def data_directory(config: BrokerConfig) -> str:
    directories = config.data_dirs
    if len(directories) > 1:
        raise ConfigError(
            f"log.dirs names {len(directories)} directories; one is supported:"
            " run a broker per disk"
        )
    return directories[0]


def own_min_isr(config: BrokerConfig) -> int:
    """What this broker's own settings say; 0 where they say nothing."""
    name = "min.insync.replicas"
    return config.get_int(name) if config.is_set(name) else 0
