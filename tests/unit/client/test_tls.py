"""Both shells over TLS: what is trusted, what is refused, and which words say why."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.helpers import metadata_response
from tests.unit.client.tls_peer import TlsPeer
from tidelog.client.aio import Client as AsyncClient
from tidelog.client.blocking import Client
from tidelog.client.connection import Call
from tidelog.client.faults import ConnectError, HandshakeError, NetworkError, TlsError
from tidelog.client.metadata import ANY
from tidelog.client.operation import ask
from tidelog.client.security import read_security
from tidelog.client.settings import ClientSettings
from tidelog.errors import ConfigError, TidelogError
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.security.tls import TlsSettings, server_context
from tidelog.testing.certificates import Authority

# One frame of several TLS records, which comes in pieces that no selector speaks of.
_PARTITIONS = 10_000


def respond(header: Any, message: Any) -> Any:
    return metadata_response(leaders=dict.fromkeys(range(_PARTITIONS), 1))


def ask_blocking(servers: str, settings: ClientSettings) -> MetadataResponse:
    with Client(servers, settings) as client:
        response: MetadataResponse = client.run(ask(_call()))
        return response


def ask_on_a_loop(servers: str, settings: ClientSettings) -> MetadataResponse:
    async def run() -> MetadataResponse:
        async with AsyncClient(servers, settings) as client:
            response: MetadataResponse = await client.run(ask(_call()))
            return response

    return asyncio.run(run())


def _call() -> Call:
    return Call(ANY, "Metadata", MetadataRequest(topics=[]))


Ask = Callable[[str, ClientSettings], MetadataResponse]


@pytest.fixture(params=[ask_blocking, ask_on_a_loop], ids=["blocking", "aio"])
def asked(request: pytest.FixtureRequest) -> Ask:
    shell: Ask = request.param
    return shell


def secured(**values: str) -> ClientSettings:
    names = {name.replace("_", "."): value for name, value in values.items()}
    security = read_security({"security.protocol": "SSL", **names})
    return ClientSettings.impatient("tester", 10_000, security)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def server(authority: Authority, tmp_path: Path, **options: Any) -> ssl.SSLContext:
    settings: dict[str, str] = options.pop("settings", {})
    path = authority.issue(**options).write(tmp_path / "broker.pem")
    return server_context(TlsSettings(keystore_location=path, **settings))  # type: ignore[arg-type]


def test_a_broker_of_a_trusted_authority_is_spoken_to(
    asked: Ask, authority: Authority, tmp_path: Path
) -> None:
    with TlsPeer(server(authority, tmp_path), respond) as peer:
        for settings in (
            secured(ssl_truststore_location=authority.write(tmp_path / "ca.pem")),
            secured(ssl_truststore_certificates=authority.pem),
        ):
            answer = asked(f"localhost:{peer.port}", settings)
            assert len(answer.topics[0].partitions) == _PARTITIONS


def test_a_client_shows_its_certificate(asked: Ask, authority: Authority, tmp_path: Path) -> None:
    trust = authority.write(tmp_path / "ca.pem")
    context = server(
        authority, tmp_path, settings={"client_auth": "required", "truststore_location": trust}
    )
    alice = authority.issue("CN=alice")
    with TlsPeer(context, respond) as peer:
        for own in (
            {"ssl_keystore_location": alice.write(tmp_path / "alice.pem")},
            {
                "ssl_keystore_key": alice.key_pem(),
                "ssl_keystore_certificate_chain": alice.certificate_pem,
            },
        ):
            settings = secured(ssl_truststore_location=trust, **own)
            assert asked(f"127.0.0.1:{peer.port}", settings).topics
        with pytest.raises((TlsError, HandshakeError)) as refused:
            asked(f"127.0.0.1:{peer.port}", secured(ssl_truststore_location=trust))
    # Which of the two depends on whether the alert comes before the first write fails.
    assert "certificate of the client" in str(refused.value) or (
        "require a client certificate" in str(refused.value)
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expired": True}, "the broker's certificate has expired"),
        ({"hosts": ("elsewhere.example",)}, "the broker's certificate is not for the name"),
    ],
)
def test_a_bad_certificate_is_refused_for_its_reason(
    asked: Ask, authority: Authority, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    trust = authority.write(tmp_path / "ca.pem")
    with TlsPeer(server(authority, tmp_path, **options), respond) as peer:
        with pytest.raises(TlsError) as refused:
            asked(f"127.0.0.1:{peer.port}", secured(ssl_truststore_location=trust))
        assert str(refused.value).startswith(f"127.0.0.1:{peer.port}: TLS: {words}")
        assert refused.value.hint
        if "hosts" in options:
            settings = secured(
                ssl_truststore_location=trust, ssl_endpoint_identification_algorithm=""
            )
            assert asked(f"127.0.0.1:{peer.port}", settings).topics


def test_an_unknown_authority_is_refused(asked: Ask, authority: Authority, tmp_path: Path) -> None:
    other = Authority("CN=other").write(tmp_path / "other.pem")
    with (
        TlsPeer(server(authority, tmp_path), respond) as peer,
        pytest.raises(TlsError, match="from an unknown authority"),
    ):
        asked(f"127.0.0.1:{peer.port}", secured(ssl_truststore_location=other))


def test_tls_to_a_plaintext_listener_says_so(asked: Ask) -> None:
    with TlsPeer(None, respond) as peer, pytest.raises(TidelogError) as refused:
        asked(f"127.0.0.1:{peer.port}", secured())
    assert "TLS: " in str(refused.value)
    assert "plaintext" in str(refused.value)


def test_a_connection_that_breaks_later_is_lost_and_no_fault_of_tls(
    asked: Ask, authority: Authority, tmp_path: Path
) -> None:
    def break_off(header: Any, message: Any) -> Any:
        raise ConnectionError

    trust = authority.write(tmp_path / "ca.pem")
    with (
        TlsPeer(server(authority, tmp_path), break_off) as peer,
        pytest.raises(NetworkError) as lost,
    ):
        asked(f"127.0.0.1:{peer.port}", secured(ssl_truststore_location=trust))
    assert not isinstance(lost.value, ConnectError), "something was sent"
    assert "TLS" not in str(lost.value)


def test_nobody_there_is_not_a_fault_of_tls(asked: Ask) -> None:
    with TlsPeer(None, respond) as peer:
        port = peer.port
    with pytest.raises(ConnectError) as refused:
        asked(f"127.0.0.1:{port}", secured())
    assert "TLS" not in str(refused.value)


def test_a_file_that_is_no_use_is_named(asked: Ask, tmp_path: Path) -> None:
    nothing = tmp_path / "none.pem"
    with pytest.raises(ConfigError, match=r"none\.pem: No such file"):
        asked("127.0.0.1:1", secured(ssl_truststore_location=str(nothing)))
