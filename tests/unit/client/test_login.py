"""A client logs in before its first call, again before its session ends, and names what failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.helpers import ManualClock, Peer, metadata_response, versions_response
from tidelog.client.connection import Call, Connection
from tidelog.client.faults import (
    AuthenticationError,
    MechanismError,
    SecurityError,
    UnsupportedApiError,
)
from tidelog.client.login import Credentials, Login
from tidelog.client.metadata import ANY
from tidelog.client.operation import Action, action_for
from tidelog.client.security import SaslOptions
from tidelog.errors import ConfigError, ErrorCode
from tidelog.host.random import SystemRandom
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tidelog.security.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Mechanism,
    ScramError,
    ScramServer,
    credential_of,
)

_SALT = b"0123456789abcdef"
Authenticate = Callable[[bytes], SaslAuthenticateResponse]


class SaslPeer(Peer):
    """A broker that offers one mechanism."""

    def __init__(self, mechanism: str, authenticate: Authenticate) -> None:
        super().__init__(self._respond)
        self.mechanism = mechanism
        self.authenticate = authenticate

    def _respond(self, header: Any, message: Any) -> Any:
        if isinstance(message, SaslHandshakeRequest):
            code = 0 if message.mechanism == self.mechanism else 33
            return SaslHandshakeResponse(code, [self.mechanism])
        if isinstance(message, SaslAuthenticateRequest):
            return self.authenticate(bytes(message.auth_bytes))
        return metadata_response()

    @property
    def asked(self) -> list[str]:
        names = {18: "versions", 17: "handshake", 36: "authenticate", 3: "metadata"}
        return [names[header.api_key] for header, _ in self.requests]


def logging_in(options: SaslOptions, clock: ManualClock | None = None) -> Connection:
    credentials = Credentials(options, clock or ManualClock(), SystemRandom())  # type: ignore[arg-type]
    login = Login(credentials, "broker:9093")
    return Connection("tester", 1 << 20, "broker:9093", login=login)


def ask(connection: Connection, peer: Peer) -> Any:
    connection.send(Call(ANY, "Metadata", MetadataRequest(topics=[])))
    try:
        peer.exchange(connection)
    except SecurityError as error:
        connection.fail(error)
    [answer] = connection.take_answers()
    return answer.outcome


def scram_server(mechanism: Mechanism, password: bytes) -> Authenticate:
    salted = mechanism.salt_password(password, _SALT, 4096)
    credential = credential_of(mechanism, salted, _SALT, 4096)
    server = ScramServer(mechanism, lambda user: credential, "server-nonce")

    def authenticate(message: bytes) -> SaslAuthenticateResponse:
        try:
            return SaslAuthenticateResponse(auth_bytes=server.answer(message))
        except ScramError as error:
            return SaslAuthenticateResponse(58, str(error))

    return authenticate


PLAIN = SaslOptions("PLAIN", "alice", "secret")


def test_plain_sends_name_and_password_before_the_first_call() -> None:
    seen = []

    def authenticate(message: bytes) -> SaslAuthenticateResponse:
        seen.append(message)
        return SaslAuthenticateResponse()

    peer = SaslPeer("PLAIN", authenticate)
    assert ask(logging_in(PLAIN), peer).topics
    assert seen == [b"\0alice\0secret"]
    assert peer.asked == ["versions", "handshake", "authenticate", "metadata"]


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512], ids=lambda each: each.name)
def test_scram_proves_the_password_to_both_sides(mechanism: Mechanism) -> None:
    peer = SaslPeer(mechanism.name, scram_server(mechanism, b"secret"))
    options = SaslOptions(mechanism.name, "alice", "secret")
    assert ask(logging_in(options), peer).topics
    assert peer.asked == ["versions", "handshake", "authenticate", "authenticate", "metadata"]


def test_a_wrong_password_is_final_and_named() -> None:
    peer = SaslPeer("SCRAM-SHA-256", scram_server(SCRAM_SHA_256, b"other"))
    outcome = ask(logging_in(SaslOptions("SCRAM-SHA-256", "alice", "secret")), peer)
    assert isinstance(outcome, AuthenticationError)
    assert str(outcome).startswith("broker:9093: SASL: SCRAM-SHA-256 authentication failed: ")
    assert action_for(outcome.code) is Action.FAIL
    assert "secret" not in str(outcome)
    assert "metadata" not in peer.asked


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    honest = scram_server(SCRAM_SHA_256, b"secret")

    def pretend(message: bytes) -> SaslAuthenticateResponse:
        if message.startswith(b"n,,"):
            return honest(message)
        return SaslAuthenticateResponse(auth_bytes=b"v=" + b"QUFB" * 11)

    outcome = ask(
        logging_in(SaslOptions("SCRAM-SHA-256", "alice", "secret")),
        SaslPeer("SCRAM-SHA-256", pretend),
    )
    assert isinstance(outcome, AuthenticationError)
    assert "the server does not know the password" in str(outcome)


def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are() -> None:
    outcome = ask(logging_in(PLAIN), SaslPeer("SCRAM-SHA-512", lambda _: pytest.fail("sent")))
    assert isinstance(outcome, MechanismError)
    assert outcome.offered == ["SCRAM-SHA-512"]
    assert "the mechanism PLAIN is not offered; offered: SCRAM-SHA-512" in str(outcome)


def test_a_listener_without_sasl_is_named() -> None:
    peer = Peer(lambda header, message: SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, []))
    outcome = ask(logging_in(PLAIN), peer)
    assert isinstance(outcome, MechanismError)
    assert "this listener does not authenticate by SASL" in str(outcome)


def test_a_handshake_without_headers_is_refused() -> None:
    peer = Peer(lambda header, message: None, versions_response(SaslHandshake=(0, 0)))
    connection = logging_in(PLAIN)
    with pytest.raises(UnsupportedApiError):
        peer.exchange(connection)


def test_a_token_is_read_from_its_file_at_every_log_in(tmp_path: Path) -> None:
    file = tmp_path / "token"
    seen = []

    def authenticate(message: bytes) -> SaslAuthenticateResponse:
        seen.append(message)
        return SaslAuthenticateResponse(session_lifetime_ms=10_000)

    clock, peer = ManualClock(), SaslPeer("OAUTHBEARER", authenticate)
    connection = logging_in(SaslOptions("OAUTHBEARER", token_file=str(file)), clock)
    file.write_text("first\n")
    assert ask(connection, peer).topics
    file.write_text("second\n")
    clock.now += 8.4
    assert ask(connection, peer).topics
    assert len(seen) == 1
    clock.now += 0.2
    assert ask(connection, peer).topics
    assert seen == [b"n,,\x01auth=Bearer first\x01\x01", b"n,,\x01auth=Bearer second\x01\x01"]
    assert peer.asked[-3:] == ["handshake", "authenticate", "metadata"]


def test_a_refused_token_is_acknowledged_and_the_brokers_words_are_shown() -> None:
    def authenticate(message: bytes) -> SaslAuthenticateResponse:
        if message == b"\x01":
            return SaslAuthenticateResponse(58, "the token has expired")
        return SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')

    outcome = ask(
        logging_in(SaslOptions("OAUTHBEARER", token="t")), SaslPeer("OAUTHBEARER", authenticate)
    )
    assert isinstance(outcome, AuthenticationError)
    assert "the token has expired" in str(outcome)


def test_a_token_file_that_is_missing_is_named(tmp_path: Path) -> None:
    connection = logging_in(SaslOptions("OAUTHBEARER", token_file=str(tmp_path / "none")))
    peer = SaslPeer("OAUTHBEARER", lambda _: SaslAuthenticateResponse())
    with pytest.raises(ConfigError, match=r"sasl.oauthbearer.token.file: .*none: No such file"):
        peer.exchange(connection)


def test_calls_made_during_a_second_log_in_wait_for_it() -> None:
    clock = ManualClock()
    peer = SaslPeer("PLAIN", lambda _: SaslAuthenticateResponse(session_lifetime_ms=1000))
    connection = logging_in(PLAIN, clock)
    assert ask(connection, peer).topics
    clock.now += 0.9
    assert ask(connection, peer).topics
    assert peer.asked.count("handshake") == 1, "brokers refuse a second log-in so soon"
    clock.now += 0.1
    tickets = [connection.send(Call(ANY, "Metadata", MetadataRequest(topics=[]))) for _ in range(3)]
    peer.exchange(connection)
    assert [answer.ticket for answer in connection.take_answers()] == tickets
    assert peer.asked[5:] == ["handshake", "authenticate", *["metadata"] * 3]
