"""How a connection authenticates, and what it may not do before and instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.server.middle import Middle, Peer, turns_of_the_loop
from tidelog.cluster.broker_login import BrokerLogin
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tidelog.security.authorizer import CLUSTER, OpenAuthorizer, Operation
from tidelog.security.broker_identity import KEY_BYTES, BrokerIdentity
from tidelog.security.failure_delays import FailureDelays
from tidelog.security.scram import ScramError
from tidelog.server.handlers import sasl
from tidelog.server.tools import SaslTools
from tidelog.testing.virtual_loop import SeededRandom, virtual_time

IDENTITY = BrokerIdentity(bytes(range(KEY_BYTES)))
STRANGER = BrokerIdentity(bytes(KEY_BYTES))
SCRAM = SaslHandshakeRequest("SCRAM-SHA-512")


class Gate(Middle):
    """A broker in front of which clients authenticate."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, identity: BrokerIdentity | None = IDENTITY
    ) -> None:
        handlers: dict[str, Any] = {
            "SaslHandshake": sasl.sasl_handshake,
            "SaslAuthenticate": sasl.sasl_authenticate,
            "Heartbeat": lambda *_: HeartbeatResponse(),
        }
        super().__init__(monkeypatch, handlers)
        tools = SaslTools(lambda: identity, SeededRandom(1), FailureDelays(self.host.clock))
        self.dispatcher._families[SaslTools] = tools


def may_act_as_broker(peer: Peer) -> bool:
    principal = peer.connection.principal
    return OpenAuthorizer().authorize(principal, "127.0.0.1", Operation.CLUSTER_ACTION, CLUSTER)


def log_in(peer: Peer, identity: BrokerIdentity = IDENTITY) -> None:
    """All that a client sends, up to the proof, whose answer has the number 3."""
    client = identity.client("client")
    peer.ask(1, "SaslHandshake", 1, SCRAM)
    peer.ask(2, "SaslAuthenticate", 2, SaslAuthenticateRequest(client.first()))
    final = client.final(peer.answer(2).auth_bytes)
    peer.ask(3, "SaslAuthenticate", 2, SaslAuthenticateRequest(final))


def asking(peer: Peer) -> Callable[[str, object], Any]:
    """What a client's side sends its requests with."""

    async def send(name: str, message: object) -> Any:
        number = len(peer.answered)
        peer.ask(number, name, 1, message)
        while len(peer.answered) == number:
            await asyncio.sleep(0.01)
        return peer.answer(number)

    return send


async def until_closed(peer: Peer) -> None:
    while not peer.is_closed:
        await asyncio.sleep(0.01)


@virtual_time
async def test_a_broker_proves_who_it_is_and_may_act_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Gate(monkeypatch).connect()
    assert not may_act_as_broker(peer)
    login = BrokerLogin(lambda: identity(IDENTITY), SeededRandom(2))
    await login.authenticate(asking(peer))
    assert may_act_as_broker(peer)
    assert peer.connection.principal.name == "User:__broker"
    peer.ask(9, "Heartbeat", 4, HeartbeatRequest("g"))
    assert peer.answered[-1] == 9


async def identity(value: BrokerIdentity | None) -> BrokerIdentity | None:
    return value


@virtual_time
async def test_a_wrong_password_is_refused_late_and_the_connection_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    peer = gate.connect()
    began = asyncio.get_running_loop().time()
    log_in(peer, STRANGER)
    await turns_of_the_loop()
    assert peer.answered == [1, 2], "the answer is delayed"
    await until_closed(peer)
    assert asyncio.get_running_loop().time() - began >= 0.1
    assert peer.answer(3).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not may_act_as_broker(peer)
    assert gate.metrics.authentications_failed == 1


@virtual_time
async def test_an_address_cannot_try_passwords_faster_with_more_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    began = asyncio.get_running_loop().time()
    peers = [gate.connect() for _ in range(8)]
    for peer in peers:
        log_in(peer, STRANGER)
    for peer in peers:
        await until_closed(peer)
    assert asyncio.get_running_loop().time() - began >= 0.8


@virtual_time
async def test_a_user_that_does_not_exist_is_not_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = []
    for name in ("__broker", "nobody"):
        peer = Gate(monkeypatch).connect()
        peer.ask(1, "SaslHandshake", 1, SCRAM)
        first = f"n,,n={name},r=nonce".encode()
        peer.ask(2, "SaslAuthenticate", 2, SaslAuthenticateRequest(first))
        challenge = peer.answer(2).auth_bytes
        nonce = challenge.split(b",")[0]
        final = b"c=biws," + nonce + b",p=" + b"A" * 86 + b"=="
        peer.ask(3, "SaslAuthenticate", 2, SaslAuthenticateRequest(final))
        await until_closed(peer)
        answers.append((len(challenge), peer.answer(3)))
    assert answers[0] == answers[1]


@virtual_time
async def test_the_salt_of_a_name_is_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    salts = set()
    for _ in range(3):
        peer = Gate(monkeypatch).connect()
        peer.ask(1, "SaslHandshake", 1, SCRAM)
        peer.ask(2, "SaslAuthenticate", 2, SaslAuthenticateRequest(b"n,,n=nobody,r=nonce"))
        salts.add(peer.answer(2).auth_bytes.split(b",")[1])
    assert len(salts) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "GSSAPI", "", "x" * 32_000])
def test_a_mechanism_of_clients_is_refused_where_the_listener_has_no_sasl(
    monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    @virtual_time
    async def run() -> None:
        peer = Gate(monkeypatch).connect()
        peer.ask(1, "SaslHandshake", 1, SaslHandshakeRequest(mechanism))
        await until_closed(peer)
        # As in Kafka: no other mechanism would do.
        assert peer.answer(1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert peer.answer(1).mechanisms == []

    run()


@virtual_time
async def test_nobody_authenticates_while_the_key_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Gate(monkeypatch, identity=None).connect()
    peer.ask(1, "SaslHandshake", 1, SCRAM)
    await until_closed(peer)
    assert peer.answer(1).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert peer.answer(1).mechanisms == []


@virtual_time
async def test_messages_without_headers_follow_a_handshake_of_version_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Gate(monkeypatch).connect()
    client = IDENTITY.client("client")
    peer.ask(1, "SaslHandshake", 0, SCRAM)
    challenge = peer.exchange(client.first())
    client.finish(peer.exchange(client.final(challenge)))
    assert may_act_as_broker(peer)
    peer.ask(9, "Heartbeat", 4, HeartbeatRequest("g"))
    assert peer.answered[-1] == 9


@virtual_time
async def test_a_wrong_password_without_headers_closes_the_connection_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Gate(monkeypatch).connect()
    began = asyncio.get_running_loop().time()
    client = STRANGER.client("client")
    peer.ask(1, "SaslHandshake", 0, SCRAM)
    challenge = peer.exchange(client.first())
    assert peer.exchange(client.final(challenge)) == b""
    await until_closed(peer)
    assert asyncio.get_running_loop().time() - began >= 0.1
    assert not may_act_as_broker(peer)


@virtual_time
async def test_authenticating_without_a_handshake_is_refused_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Gate(monkeypatch).connect()
    first = IDENTITY.client("client").first()
    peer.ask(1, "SaslAuthenticate", 2, SaslAuthenticateRequest(first))
    await until_closed(peer)
    assert peer.answer(1).error_code == ErrorCode.ILLEGAL_SASL_STATE


@virtual_time
async def test_a_second_handshake_is_refused_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_authenticated in (False, True):
        peer = Gate(monkeypatch).connect()
        if is_authenticated:
            log_in(peer)
        else:
            peer.ask(1, "SaslHandshake", 1, SCRAM)
        peer.ask(5, "SaslHandshake", 1, SCRAM)
        await until_closed(peer)
        assert peer.answer(5).error_code == ErrorCode.ILLEGAL_SASL_STATE


@virtual_time
async def test_no_other_request_is_taken_while_a_connection_authenticates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for steps in (1, 2):
        peer = Gate(monkeypatch).connect()
        peer.ask(1, "SaslHandshake", 1, SCRAM)
        if steps == 2:
            first = IDENTITY.client("client").first()
            peer.ask(2, "SaslAuthenticate", 2, SaslAuthenticateRequest(first))
        peer.ask(5, "Heartbeat", 4, HeartbeatRequest("g"))
        assert peer.is_closed
        assert 5 not in peer.answered


@virtual_time
async def test_a_request_sent_behind_a_wrong_password_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Gate(monkeypatch).connect()
    log_in(peer, STRANGER)
    peer.ask(4, "Heartbeat", 4, HeartbeatRequest("g"))
    await until_closed(peer)
    assert peer.answered == [1, 2, 3]


@virtual_time
async def test_frames_are_small_until_it_is_known_who_sends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Gate(monkeypatch).connect()
    peer.ask(1, "SaslHandshake", 1, SCRAM)
    peer.send((64 * 1024 + 1).to_bytes(4, "big"))
    assert peer.is_closed, "refused by its length, before a byte of it is received"
    peer = Gate(monkeypatch).connect()
    log_in(peer)
    peer.send((64 * 1024 + 1).to_bytes(4, "big"))
    assert not peer.is_closed


@virtual_time
async def test_who_begins_to_authenticate_and_stops_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    peer, other = gate.connect(), gate.connect()
    peer.ask(1, "SaslHandshake", 1, SCRAM)
    log_in(other)
    loop = asyncio.get_running_loop()
    for _ in range(12):
        assert not other.is_closed
        peer.connection.last_active_at = loop.time()
        gate.listener.sweep(loop.time())
        await asyncio.sleep(1)
    assert peer.is_closed and not other.is_closed


@virtual_time
async def test_a_server_that_does_not_know_the_key_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It lets everybody in, to be fetched from or to be given commands."""

    async def send(name: str, request: Any) -> Any:
        if name == "SaslHandshake":
            return sasl.SaslHandshakeResponse()
        if request.auth_bytes.startswith(b"n,,"):
            nonce = request.auth_bytes.partition(b"r=")[2]
            token = b"r=" + nonce + b"x,s=MDEyMzQ1Njc4OWFiY2RlZg==,i=4096"
        else:
            token = b"v=" + b"A" * 86 + b"=="
        return sasl.SaslAuthenticateResponse(auth_bytes=token)

    login = BrokerLogin(lambda: identity(IDENTITY), SeededRandom(2))
    with pytest.raises(ScramError, match="does not know"):
        await login.authenticate(send)


@virtual_time
async def test_a_key_that_was_replaced_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [STRANGER, IDENTITY]
    login = BrokerLogin(lambda: identity(keys.pop(0)), SeededRandom(2))
    gate = Gate(monkeypatch)
    with pytest.raises(KafkaError) as caught:
        await login.authenticate(asking(gate.connect()))
    assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await login.authenticate(asking(gate.connect()))
    assert keys == []
