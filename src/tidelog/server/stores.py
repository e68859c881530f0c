"""Which store a broker's settings name, and how it is reached.

A store that does not answer is waited for, and the log says so: brokers and ZooKeeper may be
started in any order. What waiting does not mend (access refused, a chroot that is Kafka's) is an
error at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.config import BrokerConfig
from tidelog.config.store_settings import UNIX, StoreAddress
from tidelog.errors import ConfigError
from tidelog.host.host import Host
from tidelog.host.line_rate import LineRate
from tidelog.host.offload import ThreadOffload
from tidelog.store.port import Store, StoreUnreachable

_log = logging.getLogger(__name__)

Connect = Callable[[], Awaitable[Store]]
_RETRY_S: Final = 0.5


def store_connector(config: BrokerConfig, host: Host) -> Connect | None:
    """What begins a session with the store of the cluster; None for a broker by itself."""
    address = config.store
    if address is None:
        return None
    connect = connector(address, config, host)
    rate = LineRate(host.clock)

    async def keep_trying() -> Store:
        while True:
            try:
                return await connect()
            except StoreUnreachable as error:
                if rate.count():
                    _log.warning("waiting for the metadata store: %s", error)
            await asyncio.sleep(_RETRY_S)

    return keep_trying


def connector(address: StoreAddress, config: BrokerConfig, host: Host) -> Connect:
    """What begins a session with a store; StoreUnreachable where it does not answer."""
    return _socket(address) if address.kind == UNIX else _zookeeper(config, address, host)


def _socket(address: StoreAddress) -> Connect:
    from tidelog.store.remote import connect_remote

    return lambda: connect_remote(address.place)


def _zookeeper(config: BrokerConfig, address: StoreAddress, host: Host) -> Connect:
    # kazoo is imported by the brokers that use it: it costs more than the rest of a start.
    from tidelog.store.ensemble import Ensemble
    from tidelog.store.zookeeper import connect

    ensemble = Ensemble(
        address.place,
        address.chroot,
        session_s=config.get_int("zookeeper.session.timeout.ms") / 1000,
        connect_s=config.get_int("zookeeper.connection.timeout.ms") / 1000,
        digest=config.get_str("zookeeper.digest") or None,
        tls=config.get_bool("zookeeper.ssl.client.enable"),
        tls_ca=_file(config, host, "zookeeper.ssl.truststore.location"),
        tls_certificate=_file(config, host, "zookeeper.ssl.keystore.location"),
        tls_key_password=config.get_str("zookeeper.ssl.keystore.password") or None,
        tls_check_host=bool(config.get_str("zookeeper.ssl.endpoint.identification.algorithm")),
    )
    return lambda: connect(ensemble, host.clock, ThreadOffload("zookeeper", 1))


def _file(config: BrokerConfig, host: Host, name: str) -> str | None:
    path = config.get_str(name)
    if path and not host.disk.exists(path):
        raise ConfigError(f"{name}: there is no file {path}")
    return path or None
