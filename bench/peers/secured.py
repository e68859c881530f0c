"""Peers with listeners for TLS and for SASL beside their open one, which stays for the errands.

Both sides have the same certificate, the same cipher of TLS 1.3, the same users and the same
authorizer. The open listener's clients may do everything.
"""

from __future__ import annotations

import functools
import socket
import ssl
import tempfile
from pathlib import Path

from bench.peers.peer import Peer

TLS, SASL = "SSL", "SASL_PLAINTEXT"
CIPHER = "TLS_AES_256_GCM_SHA384"
USER, PASSWORD = "alice", "a password of the benchmark"
SCRAM = "SCRAM-SHA-256"
_MODULES = "org.apache.kafka.common.security"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@functools.cache
def _keys() -> tempfile.TemporaryDirectory[str]:
    """A directory with a certificate for loopback and its authority, until this process ends."""
    from tidelog.testing.certificates import Authority

    directory, authority = tempfile.TemporaryDirectory(prefix="bench-keys-"), Authority()
    authority.write(Path(directory.name) / "ca.pem")
    authority.issue().write(Path(directory.name) / "broker.pem")
    return directory


def authority_file() -> str:
    return str(Path(_keys().name) / "ca.pem")


def check_cipher(port: int) -> None:
    """RuntimeError where a listener does not speak TLS 1.3 with the cipher of the rows."""
    context = ssl.create_default_context(cafile=authority_file())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as opened,
        context.wrap_socket(opened, server_hostname="127.0.0.1") as secured,
    ):
        spoken = secured.version(), (secured.cipher() or ("nothing",))[0]
    if spoken != ("TLSv1.3", CIPHER):
        raise RuntimeError(f"port {port} speaks {' with '.join(map(str, spoken))}")


def secure(peer: Peer, *, acls: bool = False) -> Peer:
    """Add the listeners to a peer that is not started; `acls` switches its authorizer on."""
    peer.protocols = (TLS, SASL)
    jaas = f"listener.name.{SASL.lower()}.{{}}.sasl.jaas.config"
    peer.settings |= {
        # The records of the loads are old: nobody is to remove them meanwhile.
        "log.retention.ms": "-1",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(Path(_keys().name) / "broker.pem"),
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.cipher.suites": CIPHER,
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
        jaas.format("plain"): (
            f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        jaas.format(SCRAM.lower()): f"{_MODULES}.scram.ScramLoginModule required;",
    }
    if acls:
        peer.settings["authorizer.class.name"] = _AUTHORIZER
        peer.settings["super.users"] = "User:ANONYMOUS"
    return peer
