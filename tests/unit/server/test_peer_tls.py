"""How a broker secures its connections to others, and whom it does not talk to."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.unit.security.handshakes import shake_hands
from tidelog.client.faults import ConnectError
from tidelog.cluster.image import Endpoint
from tidelog.cluster.peer import PeerConnection, PeerOptions
from tidelog.config import BrokerConfig
from tidelog.errors import KafkaError
from tidelog.host.network import SystemNetwork
from tidelog.security.tls import TlsSettings, server_context
from tidelog.server.peer_tls import PeerTls
from tidelog.testing.certificates import Authority, Identity

AUTHORITY = Authority()


def settings_of(directory: Path, identity: Identity) -> dict[str, str]:
    return {
        "listeners": "INSIDE://127.0.0.1:1,PLAINTEXT://127.0.0.1:2",
        "listener.security.protocol.map": "INSIDE:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "listener.name.inside.ssl.keystore.location": identity.write(directory / "own.pem"),
        "listener.name.inside.ssl.truststore.location": AUTHORITY.write(directory / "ca.pem"),
    }


def refusal(tmp_path: Path, other: Identity, own: Identity | None = None) -> str:
    """Why a broker does not connect to one with that certificate, which wants to see one, too;
    empty where it does."""
    config = BrokerConfig(settings_of(tmp_path, own or AUTHORITY.issue()))
    tls = PeerTls(lambda: config)
    context = server_context(
        TlsSettings(
            keystore_key=other.key_pem(),
            keystore_certificate_chain=other.certificate_pem,
            truststore_certificates=AUTHORITY.pem,
            client_auth="required",
            # So that the client learns of it during the handshake.
            protocol="TLSv1.2",
        )
    )

    async def connect() -> None:
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
        )
        port = server.sockets[0].getsockname()[1]
        peer = PeerConnection(
            SystemNetwork(), Endpoint("INSIDE", "127.0.0.1", port), PeerOptions(tls=tls)
        )
        try:
            await peer.connect(5)
        finally:
            peer.close()
            server.close()
            await server.wait_closed()

    try:
        asyncio.run(connect())
    except ConnectError as error:
        return str(error)
    return ""


def test_a_broker_with_the_right_certificate_is_connected_to(tmp_path: Path) -> None:
    assert refusal(tmp_path, AUTHORITY.issue()) == ""


def test_x2_a_broker_with_a_certificate_for_another_host_is_not_talked_to(tmp_path: Path) -> None:
    other = AUTHORITY.issue(hosts=["elsewhere.example"])
    assert "IP address mismatch" in refusal(tmp_path, other)


@pytest.mark.parametrize("other", [Authority().issue(), AUTHORITY.issue(expired=True)])
def test_x1_a_broker_with_a_bad_certificate_is_not_talked_to(
    tmp_path: Path, other: Identity
) -> None:
    assert "certificate" in refusal(tmp_path, other)


def test_x3_a_broker_is_refused_where_its_own_certificate_is_not_good(tmp_path: Path) -> None:
    assert refusal(tmp_path, AUTHORITY.issue(), own=Authority().issue())


def test_a_context_is_made_again_only_once_a_file_has_changed(tmp_path: Path) -> None:
    config = BrokerConfig(settings_of(tmp_path, AUTHORITY.issue()))
    tls = PeerTls(lambda: config)
    first = tls("INSIDE")
    assert isinstance(first, ssl.SSLContext) and tls("INSIDE") is first
    AUTHORITY.issue("CN=broker,O=renewed").write(tmp_path / "own.pem")
    assert tls("INSIDE") is not first


def test_without_tls_on_the_brokers_listener_there_is_none(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, AUTHORITY.issue())
    config = BrokerConfig(settings | {"inter.broker.listener.name": "PLAINTEXT"})
    assert PeerTls(lambda: config)("PLAINTEXT") is None


def test_brokers_that_go_to_a_listener_with_tls_still_reach_those_on_the_one_without(
    tmp_path: Path,
) -> None:
    config = BrokerConfig(settings_of(tmp_path, AUTHORITY.issue()))
    tls = PeerTls(lambda: config)
    assert tls("PLAINTEXT") is None
    assert tls("INSIDE") is not None and tls("unknown") is tls("INSIDE")


def proof(directory: Path, other: Identity, brokers: str, protocol: str = "SSL") -> bool:
    """Whether two certificates prove two brokers to each other; KafkaError where they do not."""
    own = AUTHORITY.issue("CN=broker1")
    config = BrokerConfig(
        settings_of(directory, own)
        | {
            "listener.security.protocol.map": f"INSIDE:{protocol},PLAINTEXT:PLAINTEXT",
            "ssl.client.auth": "required",
            "ssl.broker.principals": brokers,
        }
    )
    tls = PeerTls(lambda: config)
    context = tls("INSIDE")
    assert context is not None
    server = server_context(
        TlsSettings(keystore_key=other.key_pem(), keystore_certificate_chain=other.certificate_pem)
    )
    return tls.proves("INSIDE", shake_hands(server, context)[1])


BROKERS_NAMED = "User:CN=broker1;User:CN=broker2"


def test_certificates_that_are_named_as_brokers_prove_both_sides(tmp_path: Path) -> None:
    broker = AUTHORITY.issue("CN=broker2")
    assert proof(tmp_path, broker, BROKERS_NAMED)
    assert not proof(tmp_path, broker, ""), "the key of the cluster has to"
    assert not proof(tmp_path, broker, BROKERS_NAMED, "SASL_SSL"), "SASL has to"


@pytest.mark.parametrize("name", ["CN=alice", "CN=broker2,O=else", "OU=CN\\=broker2"])
def test_a_client_with_a_certificate_of_the_brokers_authority_does_not_pose_as_a_leader(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(KafkaError, match=r"which ssl\.broker\.principals does not name"):
        proof(tmp_path, AUTHORITY.issue(name), BROKERS_NAMED)
