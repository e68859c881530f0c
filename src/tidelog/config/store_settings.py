"""Where the metadata of a cluster is kept: the settings, and what an address of a store means.

    zookeeper://HOST:2181,HOST:2181/CHROOT    a ZooKeeper ensemble
    unix:/PATH                                what another process of this machine serves
    (empty)                                   the broker keeps its own, in its data directory

Brokers that a ZooKeeper on another machine brings together reach each other and their clients
over the network, so their listeners must have addresses that others can connect to.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tidelog.config.listeners import Listeners
from tidelog.config.setting import Value, boolean, integer, password, text
from tidelog.errors import ConfigError

ZOOKEEPER: Final = "zookeeper"
UNIX: Final = "unix"
ZOOKEEPER_PREFIX: Final = "zookeeper."
DEFAULT_CHROOT: Final = "/tidelog"
DEFAULT_ZOOKEEPER_PORT: Final = 2181
# It is part of every path that a transaction names, and transactions have a bound.
CHROOT_LENGTH_MAX: Final = 100


class StoreAddress(NamedTuple):
    """A store that several brokers share."""

    kind: str
    # Of ZooKeeper "host:port,host:port", of a socket its path.
    place: str
    chroot: str = ""

    @property
    def is_on_this_machine(self) -> bool:
        if self.kind == UNIX:
            return True
        return all(is_loopback(each.rpartition(":")[0]) for each in self.place.split(","))

    def __str__(self) -> str:
        if self.kind == UNIX:
            return f"{UNIX}:{self.place}"
        return f"{ZOOKEEPER}://{self.place}{self.chroot}"


def parse_store(address: str) -> StoreAddress | None:
    """What an address names, None for a broker by itself; ConfigError for anything else."""
    if not address:
        return None
    if address.startswith(f"{UNIX}:/"):
        return StoreAddress(UNIX, address.removeprefix(f"{UNIX}:"))
    parts = urlsplit(address)
    hosts = parts.netloc.split(",")
    if parts.scheme != ZOOKEEPER or "" in hosts or "@" in parts.netloc or parts.query:
        raise ConfigError(
            "write zookeeper://HOST:2181,HOST:2181/CHROOT, or unix:/PATH of a socket; user and"
            " password of ZooKeeper go into zookeeper.digest"
        )
    place = ",".join(_with_port(each) for each in hosts)
    chroot = parts.path.rstrip("/") or DEFAULT_CHROOT
    if len(chroot.encode()) > CHROOT_LENGTH_MAX:
        raise ConfigError(f"the chroot {chroot} has more than {CHROOT_LENGTH_MAX} bytes")
    return StoreAddress(ZOOKEEPER, place, chroot)


def keeps_secrets(store: StoreAddress | None, digest: str) -> bool:
    """Whether nobody but the brokers can read what a store holds."""
    return store is None or store.kind != ZOOKEEPER or bool(digest)


def check_keeps_secrets(store: StoreAddress | None, digest: str, users: int) -> None:
    """ConfigError where the credentials of users would go where anybody can read them."""
    if users and not keeps_secrets(store, digest):
        raise ConfigError(
            f"the metadata has the credentials of {users} user(s), and everybody who reaches"
            f" {store} could read them there; set zookeeper.digest for this command and the brokers"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can use the address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def check_reachable(store: StoreAddress | None, listeners: Listeners) -> None:
    """ConfigError where other machines are told an address that they cannot connect to."""
    if store is None or store.is_on_this_machine:
        return
    for each in listeners.opened:
        host, _ = listeners.advertised.get(each.name, (each.host, 0))
        # Compared with and shown, not bound to.
        if host in ("", "0.0.0.0", "::") or is_loopback(host):  # nosec B104
            shown = host or "0.0.0.0"  # nosec B104
            raise ConfigError(
                f"listener {each.name} has the address {shown}, and the brokers of"
                f" {store} are on other machines, which cannot connect to it: set"
                f" advertised.listeners={each.name}://HOST:{each.port} with this machine's name"
            )


def _with_port(host: str) -> str:
    has_port = host.rpartition(":")[2].isdecimal() and not host.endswith("]")
    return host if has_port else f"{host}:{DEFAULT_ZOOKEEPER_PORT}"


def _check_store(value: Value) -> None:
    parse_store(str(value))


def _check_digest(value: Value) -> None:
    user, colon, password = str(value).partition(":")
    if value and not (user and colon and password):
        raise ConfigError("write USER:PASSWORD")


_NAME_OF_KAFKA_3 = "The name is from Kafka 3."

STORE_SETTINGS: Final = (
    text(
        "store",
        "",
        "Where the cluster keeps its metadata: `zookeeper://HOST:2181,HOST:2181/CHROOT` (without"
        " a chroot, `/tidelog`), or `unix:/PATH` of a socket on which a process of this machine"
        " serves it. Empty: this broker is standalone and keeps its metadata in its data"
        " directory. `zookeeper.connect` does not select ZooKeeper.",
        check=_check_store,
        kafka=False,
    ),
    integer(
        "zookeeper.session.timeout.ms",
        9000,
        "How long a broker may be silent before ZooKeeper ends its session and other brokers take "
        f"over its partitions. {_NAME_OF_KAFKA_3}",
        minimum=1000,
        kafka=False,
    ),
    integer(
        "zookeeper.connection.timeout.ms",
        30_000,
        "How long one attempt to connect to ZooKeeper may take. A broker that cannot reach "
        f"ZooKeeper logs that and retries until it can. {_NAME_OF_KAFKA_3}",
        minimum=100,
        kafka=False,
    ),
    password(
        "zookeeper.digest",
        None,
        "USER:PASSWORD for ZooKeeper's digest scheme. This user then owns the nodes, and nobody"
        " else can read or change them. Set it in a file or the environment; it is refused on the"
        " command line.",
        check=_check_digest,
        kafka=False,
    ),
    boolean(
        "zookeeper.ssl.client.enable",
        False,
        f"Whether to connect to ZooKeeper with TLS. {_NAME_OF_KAFKA_3}",
        kafka=False,
    ),
    text(
        "zookeeper.ssl.truststore.location",
        "",
        "A PEM file with the authorities that sign ZooKeeper's certificates; empty: those "
        f"that this machine trusts. {_NAME_OF_KAFKA_3}",
        kafka=False,
    ),
    text(
        "zookeeper.ssl.keystore.location",
        "",
        "A PEM file with this broker's certificate and its key, if ZooKeeper requires one. "
        f"{_NAME_OF_KAFKA_3}",
        kafka=False,
    ),
    password(
        "zookeeper.ssl.keystore.password",
        None,
        f"The password of the key in `zookeeper.ssl.keystore.location`. {_NAME_OF_KAFKA_3}",
        kafka=False,
    ),
    text(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        "HTTPS: ZooKeeper's certificate must match the host name. Empty: any name is accepted. "
        f"{_NAME_OF_KAFKA_3}",
        choices=("HTTPS", ""),
        kafka=False,
    ),
)
