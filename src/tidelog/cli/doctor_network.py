"""The doctor's look at a broker from outside: name, port, protocol, and what it advertises."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tidelog.cli import doctor_security as secured
from tidelog.cli.common import client_settings
from tidelog.cli.faults import explain
from tidelog.cli.finding import Finding, fault, well
from tidelog.cli.profile import current_profile
from tidelog.client.blocking import Client
from tidelog.client.connection import Connection
from tidelog.client.faults import SecurityError, TlsError
from tidelog.client.metadata import BrokerNode, TopicMetadata
from tidelog.client.operation import refresh
from tidelog.client.security import OPEN
from tidelog.errors import ProtocolError, TidelogError

_FRAME_BYTES_MAX = 1 << 20
_PARTITIONS_SHOWN = 10
Check = Callable[[], Finding]


def examine(address: tuple[str, int], timeout_s: float, *, tls: bool = False) -> Iterator[Finding]:
    """From the name to the advertised addresses, up to the first thing that is wrong."""
    host, port = address
    security = current_profile().security
    is_tls = tls or security.tls is not None
    checks: tuple[Check, ...] = (
        partial(check_name, host),
        partial(check_listening, host, port, timeout_s),
        partial(check_protocol, host, port, timeout_s, tls=is_tls),
    )
    for check in checks:
        finding = check()
        yield finding
        if not finding.ok:
            return
    if security != OPEN:
        for finding in secured.examine(address, timeout_s, security):
            yield finding
            if not finding.ok:
                return
    # A flag alone says nothing of whom to trust.
    if security.tls is not None or not is_tls:
        yield from check_advertised(host, port, timeout_s)


def check_name(host: str) -> Finding:
    """Does the name resolve?"""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return fault(
            "name",
            f"The name {host} cannot be resolved: {reason}.",
            "check the spelling and the DNS, or use an IP address with -b",
        )
    addresses = sorted({str(entry[4][0]) for entry in found})
    return well("name", f"{host} is {', '.join(addresses)}.")


def check_listening(host: str, port: int, timeout_s: float) -> Finding:
    """Does anything accept connections there?"""
    address = f"{host}:{port}"
    try:
        socket.create_connection((host, port), timeout_s).close()
    except ConnectionRefusedError:
        return fault(
            "port",
            f"Nothing listens on {address}.",
            "start a broker with `tidelog up`, or name another one with -b",
        )
    except OSError as error:
        silent = isinstance(error, TimeoutError)
        reason = "no answer in time" if silent else error.strerror or str(error)
        return fault(
            "port",
            f"{address} cannot be reached: {reason}.",
            "a firewall or the network may drop the connection; is the address right?",
        )
    return well("port", f"Something listens on {address}.")


def check_protocol(host: str, port: int, timeout_s: float, *, tls: bool = False) -> Finding:
    """Does it speak Kafka's protocol, and is TLS on both sides or on neither?"""
    address = f"{host}:{port}"
    if tls:
        return _check_tls(host, port, timeout_s)
    if _speaks_kafka(host, port, timeout_s):
        return well("protocol", f"{address} speaks Kafka's protocol, without TLS.")
    if _speaks_tls(host, port, timeout_s) is None:
        return fault(
            "protocol",
            f"{address} speaks TLS, but the client speaks plaintext.",
            "set security.protocol=SSL or SASL_SSL in the file of --config, or use a plaintext"
            " listener of the broker",
        )
    return fault(
        "protocol",
        f"Something listens on {address}, but it does not speak Kafka's protocol.",
        "is it another service's port? A broker's listeners are in its configuration",
    )


def _check_tls(host: str, port: int, timeout_s: float) -> Finding:
    address = f"{host}:{port}"
    problem = _speaks_tls(host, port, timeout_s)
    if problem is None:
        return well("protocol", f"{address} speaks TLS.")
    if _speaks_kafka(host, port, timeout_s):
        return fault(
            "protocol",
            f"The client speaks TLS, but {address} speaks plaintext.",
            "set security.protocol=PLAINTEXT in the client (for the doctor also: leave out --tls), "
            "or use a TLS listener of the broker",
        )
    return fault(
        "protocol",
        f"{address} speaks neither TLS nor Kafka's protocol: {problem}.",
        "is it another service's port?",
    )


def _speaks_kafka(host: str, port: int, timeout_s: float) -> bool:
    connection = Connection("tidelog-doctor", _FRAME_BYTES_MAX, f"{host}:{port}")
    try:
        with socket.create_connection((host, port), timeout_s) as stream:
            while not connection.ready:
                for part in connection.take_output():
                    stream.sendall(part)  # type: ignore[arg-type]
                data = stream.recv(65536)
                if not data:
                    return False
                connection.receive(data)
    except (OSError, ProtocolError):
        return False
    return True


def _speaks_tls(host: str, port: int, timeout_s: float) -> str | None:
    """None where a TLS handshake succeeds, whatever the certificate; else what went wrong."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout_s) as stream,
            context.wrap_socket(stream, server_hostname=host),
        ):
            return None
    except ssl.SSLError as error:
        # A server that wants a certificate, or another version, speaks TLS none the less.
        alert = "ALERT" in (error.reason or "")
        return None if alert else (error.reason or str(error)).lower().replace("_", " ")
    except OSError as error:
        return error.strerror or str(error)


def check_advertised(host: str, port: int, timeout_s: float) -> Iterator[Finding]:
    """Can the addresses be reached that the broker tells its clients?"""
    with Client(
        f"{host}:{port}" if ":" not in host else f"[{host}]:{port}", client_settings(timeout_s)
    ) as client:
        try:
            client.run(refresh(client.cluster))
        except TidelogError as error:
            yield _no_metadata(error, (host, port), timeout_s)
            return
        yield check_partitions(client.cluster.topics.values())
        for broker in client.cluster.brokers.values():
            yield _check_advertised(broker, (host, port), timeout_s)


def _no_metadata(error: TidelogError, address: tuple[str, int], timeout_s: float) -> Finding:
    """A listener with SASL closes a connection without it, and says nothing."""
    security = current_profile().security
    if security.sasl is None:
        mechanisms = secured.wanted_mechanisms(address, timeout_s)
        if mechanisms:
            protocol = "SASL_PLAINTEXT" if security.tls is None else "SASL_SSL"
            return fault(
                "mechanism",
                f"{address[0]}:{address[1]} requires SASL; it offers {', '.join(mechanisms)}.",
                f"give --config client.properties with security.protocol={protocol},"
                " sasl.mechanism and sasl.jaas.config",
            )
    if isinstance(error, SecurityError):
        # With TLS 1.3 a broker refuses a client's certificate after the handshake.
        kind = "certificate" if isinstance(error, TlsError) else "login"
        return fault(kind, f"{error}.", explain(error).hint)
    return fault("metadata", f"The broker gives no metadata: {error}.", "look at its log")


def check_partitions(topics: Iterable[TopicMetadata]) -> Finding:
    """Is every partition served?"""
    count = 0
    offline = []
    for topic in topics:
        for partition in topic.partitions.values():
            count += 1
            if partition.leader < 0 or partition.leader in partition.offline:
                offline.append(f"{topic.name}-{partition.partition}")
    if not offline:
        return well("partitions", f"Every partition is online: {count:,} of {count:,}.")
    shown = ", ".join(sorted(offline)[:_PARTITIONS_SHOWN])
    more = len(offline) - _PARTITIONS_SHOWN
    return fault(
        "partitions",
        f"{len(offline):,} of {count:,} partitions are offline: {shown}"
        + (f" and {more:,} more." if more > 0 else "."),
        "the broker's log and its /readyz say why; after a failure of the disk, mend it and "
        "restart the broker",
    )


def _check_advertised(broker: BrokerNode, used: tuple[str, int], timeout_s: float) -> Finding:
    told = f"{broker.host}:{broker.port}"
    steps: tuple[Check, ...] = (
        partial(check_name, broker.host),
        partial(check_listening, broker.host, broker.port, timeout_s),
    )
    for step in steps:
        finding = step()
        if not finding.ok:
            right = f"{used[0]}:{used[1]}"
            return fault(
                "advertised address",
                f"Broker {broker.id} was reached at {right} but tells clients to use {told}, "
                f"which cannot be reached from here.",
                f"start the broker with --advertise {right}",
            )
    return well("advertised address", f"Broker {broker.id} is at {told}, which can be reached.")
