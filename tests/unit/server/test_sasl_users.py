"""Users that authenticate by SCRAM, sessions that end, and users that are there no more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.server.middle import Peer
from tests.unit.server.test_sasl_listener import (
    IDENTITY,
    RIGHT,
    SETTINGS,
    Gate,
    authenticate,
    handshake,
    security_of,
    until_closed,
)
from tidelog.config import BrokerConfig
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.security.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Credential,
    Mechanism,
    ScramClient,
    credential_of,
)
from tidelog.security.scram_users import ScramUsers
from tidelog.testing.virtual_loop import virtual_time

JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
Stored = dict[tuple[str, str], Credential]


def credential(password: str, mechanism: Mechanism = SCRAM_SHA_256) -> Credential:
    salt = b"salt of 16 bytes"
    return credential_of(
        mechanism, mechanism.salt_password(password.encode(), salt, 4096), salt, 4096
    )


def known(**passwords: str) -> Any:
    """Metadata with these users."""
    found = {(user, "SCRAM-SHA-256"): credential(word) for user, word in passwords.items()}
    return SimpleNamespace(scram_credentials=found)


def client(user: str, password: str, mechanism: Mechanism = SCRAM_SHA_256) -> ScramClient:
    return ScramClient(
        mechanism,
        user,
        lambda salt, iterations: mechanism.salt_password(password.encode(), salt, iterations),
        "nonce",
    )


def log_in(peer: Peer, user: str, password: str, first: int = 1) -> None:
    """The messages of an exchange; the last answer has the number `first` + 2."""
    side = client(user, password)
    handshake(peer, first, "SCRAM-SHA-256")
    authenticate(peer, first + 1, side.first())
    authenticate(peer, first + 2, side.final(peer.answer(first + 1).auth_bytes))


def beat(peer: Peer, number: int) -> bool:
    """Whether a request is served."""
    peer.ask(number, "Heartbeat", 4, HeartbeatRequest("g"))
    return number in peer.answered


def gate_with(monkeypatch: pytest.MonkeyPatch, **passwords: str) -> Gate:
    """A gate that knows users by their passwords."""
    gate = Gate(monkeypatch)
    gate.metadata.image = known(**passwords)
    return gate


async def refused(peer: Peer, request: int) -> None:
    """The log-in fails with this request, and the connection ends."""
    await until_closed(peer)
    assert peer.answer(request).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@virtual_time
async def test_a_user_authenticates_by_scram(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = gate_with(monkeypatch, alice="s3cret")
    peer = gate.connect()
    log_in(peer, "alice", "s3cret")
    assert peer.connection.principal == ("User:alice", False)
    assert beat(peer, 9)


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "s3cret")])
def test_x9_a_wrong_proof_is_refused(
    monkeypatch: pytest.MonkeyPatch, user: str, password: str
) -> None:
    @virtual_time
    async def run() -> None:
        gate = gate_with(monkeypatch, alice="s3cret")
        peer = gate.connect()
        log_in(peer, user, password)
        await refused(peer, 3)
        assert "wrong" in peer.answer(3).error_message

    run()


@virtual_time
async def test_x9_a_credential_of_another_mechanism_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    stored = {("alice", "SCRAM-SHA-512"): credential("s3cret", SCRAM_SHA_512)}
    gate.metadata.image = SimpleNamespace(scram_credentials=stored)
    peer = gate.connect()
    log_in(peer, "alice", "s3cret")
    await refused(peer, 3)


@virtual_time
async def test_x9_an_exchange_cannot_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = gate_with(monkeypatch, alice="s3cret")
    first = gate.connect()
    side = client("alice", "s3cret")
    handshake(first, 1, "SCRAM-SHA-256")
    authenticate(first, 2, side.first())
    proof = side.final(first.answer(2).auth_bytes)
    authenticate(first, 3, proof)
    assert not first.answer(3).error_code
    second = gate.connect()
    handshake(second, 1, "SCRAM-SHA-256")
    authenticate(second, 2, side.first())
    authenticate(second, 3, proof)
    await refused(second, 3)


@virtual_time
async def test_x5_a_stored_user_with_the_name_of_brokers_is_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = gate_with(monkeypatch, __broker="s3cret")
    peer = gate.connect()
    log_in(peer, "__broker", "s3cret")
    await refused(peer, 3)


def test_x10_an_unknown_user_has_a_salt_of_its_own_that_looks_like_others() -> None:
    stored: Stored = {}
    for user, iterations in (("alice", 8192), ("bob", 8192)):
        salt = user.encode() * 8
        salted = SCRAM_SHA_256.salt_password(b"x", salt[:24], 4096)
        stored[user, "SCRAM-SHA-256"] = credential_of(SCRAM_SHA_256, salted, salt[:24], iterations)
    find = ScramUsers().finder(SCRAM_SHA_256, IDENTITY, stored)
    strangers = {name: find(name) for name in ("carol", "dave", "eve")}
    assert len({each.salt for each in strangers.values()}) == 3
    for name, each in strangers.items():
        assert (len(each.salt), each.iterations, len(each.stored_key)) == (24, 8192, 32)
        assert find(name) == each, "and always the same"


def test_x9_a_stored_credential_with_too_few_iterations_is_not_used() -> None:
    weak = Credential(b"salt of 16 bytes", 1000, b"k" * 32, b"s" * 32)
    stored: Stored = {("alice", "SCRAM-SHA-256"): weak}
    found = ScramUsers().finder(SCRAM_SHA_256, IDENTITY, stored)("alice")
    assert found.iterations >= 4096 and found.stored_key != weak.stored_key


@virtual_time
async def test_x11_a_client_that_wants_to_bind_the_channel_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = gate_with(monkeypatch, alice="s3cret")
    for flag, is_taken in ((b"n", True), (b"y", True), (b"p=tls-unique", False)):
        peer = gate.connect()
        handshake(peer, 1, "SCRAM-SHA-256")
        authenticate(peer, 2, flag + b",,n=alice,r=nonce")
        if is_taken:
            assert not peer.answer(2).error_code
        else:
            await refused(peer, 2)


@virtual_time
async def test_x15_the_connections_of_a_deleted_or_changed_user_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = gate_with(monkeypatch, alice="s3cret", bob="s3cret", carol="s3cret")
    peers = {user: gate.connect() for user in ("alice", "bob", "carol")}
    for user, peer in peers.items():
        log_in(peer, user, "s3cret")
    loop = asyncio.get_running_loop()
    gate.listener.sweep(loop.time())
    assert all(beat(peer, 8) for peer in peers.values())
    gate.metadata.image = known(bob="another", carol="s3cret")
    gate.listener.sweep(loop.time())
    assert [peer.is_closed for peer in peers.values()] == [True, True, False]


@virtual_time
async def test_x15_a_password_that_changes_during_the_exchange_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = gate_with(monkeypatch, alice="s3cret")
    peer, side = gate.connect(), client("alice", "s3cret")
    handshake(peer, 1, "SCRAM-SHA-256")
    authenticate(peer, 2, side.first())
    gate.metadata.image = known()
    authenticate(peer, 3, side.final(peer.answer(2).auth_bytes))
    await refused(peer, 3)


@virtual_time
async def test_x15_a_user_of_plain_that_settings_drop_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    peer = gate.connect()
    handshake(peer, 1)
    authenticate(peer, 2, RIGHT)
    loop = asyncio.get_running_loop()
    gate.listener.security.refresh(
        BrokerConfig(SETTINGS, dynamic={JAAS: SETTINGS[JAAS].replace("alice", "bob")})
    )
    gate.listener.sweep(loop.time())
    assert peer.is_closed


class Sessions(Gate):
    """A broker on which a login lasts ten seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.listener.security = security_of(
            SETTINGS
            | {
                "connections.max.reauth.ms": "99000",
                "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "10000",
            }
        )


@virtual_time
async def test_x13_a_session_that_has_ended_is_closed_with_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Sessions(monkeypatch).connect()
    handshake(peer, 1)
    authenticate(peer, 2, RIGHT)
    assert peer.answer(2).session_lifetime_ms == 10_000
    await asyncio.sleep(9.9)
    assert beat(peer, 3)
    await asyncio.sleep(0.2)
    assert not beat(peer, 4) and peer.is_closed


@virtual_time
async def test_a_connection_that_authenticates_again_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Sessions(monkeypatch).connect()
    for at in range(0, 50, 10):
        handshake(peer, at)
        authenticate(peer, at + 1, RIGHT)
        await asyncio.sleep(9)
        assert beat(peer, at + 2)
    await asyncio.sleep(2)
    handshake(peer, 60)
    authenticate(peer, 61, RIGHT)
    assert beat(peer, 62), "late is not too late, as long as nothing else was asked"


@pytest.mark.parametrize(
    ("mechanism", "token", "error"),
    [
        ("PLAIN", b"\0__broker\0s3cret", ErrorCode.SASL_AUTHENTICATION_FAILED),
        ("SCRAM-SHA-256", b"", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_x13_neither_the_principal_nor_the_mechanism_may_change(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, token: bytes, error: ErrorCode
) -> None:
    @virtual_time
    async def run() -> None:
        peer = Sessions(monkeypatch).connect()
        handshake(peer, 1)
        authenticate(peer, 2, RIGHT)
        await asyncio.sleep(5)
        handshake(peer, 3, mechanism)
        if token:
            authenticate(peer, 4, token)
        await until_closed(peer)
        assert peer.answer(4 if token else 3).error_code == error

    run()


@virtual_time
async def test_nothing_else_is_served_while_a_connection_authenticates_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Sessions(monkeypatch).connect()
    handshake(peer, 1)
    authenticate(peer, 2, RIGHT)
    await asyncio.sleep(5)
    handshake(peer, 3)
    assert not beat(peer, 4) and peer.is_closed
