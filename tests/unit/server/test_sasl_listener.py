"""A listener on which clients must authenticate: what it takes before, and from whom."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.unit.server.middle import Middle, Peer
from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError, ErrorCode
from tidelog.protocol.apis import API_BY_KEY, SASL_KEYS
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tidelog.security.broker_identity import KEY_BYTES, BrokerIdentity
from tidelog.security.failure_delays import FailureDelays
from tidelog.security.scram import SCRAM_SHA_512, ScramClient
from tidelog.server.handlers import sasl
from tidelog.server.secured_listener import SecuredListener
from tidelog.server.tools import SaslTools
from tidelog.testing.virtual_loop import SeededRandom, virtual_time

IDENTITY = BrokerIdentity(bytes(range(KEY_BYTES)))
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULE} required user_alice="s3cret" user___broker="s3cret";'
    ),
}
RIGHT, WRONG = b"\0alice\0s3cret", b"\0alice\0wrong"


def security_of(settings: dict[str, str]) -> SecuredListener:
    config = BrokerConfig(settings)
    return SecuredListener(config.listeners.opened[0], config)


class Gate(Middle):
    """A broker with one SASL listener."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        handlers: dict[str, Any] = {
            "SaslHandshake": sasl.sasl_handshake,
            "SaslAuthenticate": sasl.sasl_authenticate,
            "Heartbeat": lambda *_: HeartbeatResponse(),
            "ApiVersions": lambda *_: ApiVersionsResponse(),
        }
        super().__init__(monkeypatch, handlers, security_of(SETTINGS))
        tools = SaslTools(lambda: IDENTITY, SeededRandom(1), FailureDelays(self.host.clock))
        self.dispatcher._families[SaslTools] = tools


def handshake(peer: Peer, number: int, mechanism: str = "PLAIN", version: int = 1) -> None:
    peer.ask(number, "SaslHandshake", version, SaslHandshakeRequest(mechanism))


def authenticate(peer: Peer, number: int, token: bytes) -> None:
    peer.ask(number, "SaslAuthenticate", 2, SaslAuthenticateRequest(token))


async def until_closed(peer: Peer) -> None:
    while not peer.is_closed:
        await asyncio.sleep(0.01)


@virtual_time
async def test_a_user_authenticates_by_plain_and_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Gate(monkeypatch).connect()
    peer.ask(1, "ApiVersions", 3, ApiVersionsRequest())
    handshake(peer, 2)
    authenticate(peer, 3, RIGHT)
    peer.ask(4, "Heartbeat", 4, HeartbeatRequest("g"))
    assert peer.answered == [1, 2, 3, 4]
    assert peer.answer(2).mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert peer.connection.principal == ("User:alice", False)


@virtual_time
async def test_x5_a_user_with_the_name_of_brokers_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Gate(monkeypatch).connect()
    handshake(peer, 1)
    authenticate(peer, 2, b"\0__broker\0s3cret")
    assert peer.connection.principal == ("User:__broker", False)


@virtual_time
async def test_brokers_log_in_by_a_mechanism_that_users_are_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Gate(monkeypatch).connect()
    client = IDENTITY.client("client")
    handshake(peer, 1, "SCRAM-SHA-512")
    authenticate(peer, 2, client.first())
    authenticate(peer, 3, client.final(peer.answer(2).auth_bytes))
    assert peer.connection.principal == ("User:__broker", True)


@virtual_time
async def test_a_user_learns_that_the_mechanism_of_brokers_is_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was told that its password is wrong."""
    stranger = BrokerIdentity(bytes(KEY_BYTES)).client("client")
    salted = SCRAM_SHA_512.salt_password
    alice = ScramClient(SCRAM_SHA_512, "alice", partial(salted, b"s3cret"), "client")
    for client, code in (
        (alice, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (stranger, ErrorCode.SASL_AUTHENTICATION_FAILED),
    ):
        peer = Gate(monkeypatch).connect()
        handshake(peer, 1, "SCRAM-SHA-512")
        authenticate(peer, 2, client.first())
        authenticate(peer, 3, client.final(peer.answer(2).auth_bytes))
        await until_closed(peer)
        assert peer.answer(3).error_code == code
        is_named = "offers PLAIN, SCRAM-SHA-256" in peer.answer(3).error_message
        assert is_named == (code == ErrorCode.UNSUPPORTED_SASL_MECHANISM)


@virtual_time
async def test_x7_every_other_api_closes_the_connection_before_authentication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = 0
    for key, each in API_BY_KEY.items():
        if key in SASL_KEYS or each.name == "ApiVersions":
            continue
        for is_begun in (False, True):
            peer = Gate(monkeypatch).connect()
            if is_begun:
                handshake(peer, 1)
            # A header is enough: nothing behind it is looked at.
            header = key.to_bytes(2, "big") + each.served[1].to_bytes(2, "big") + bytes(4)
            frame = header + b"\xff\xff" + bytes(20)
            peer.send(len(frame).to_bytes(4, "big") + frame)
            assert peer.is_closed, each.name
            assert len(peer.frames()) == is_begun
            refused += 1
    assert refused == 2 * (len(API_BY_KEY) - 3)


@virtual_time
async def test_x7_api_versions_is_not_taken_once_the_exchange_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Gate(monkeypatch).connect()
    handshake(peer, 1)
    peer.ask(2, "ApiVersions", 3, ApiVersionsRequest())
    assert peer.is_closed and peer.answered == [1]


@virtual_time
async def test_x24_a_frame_above_64_kib_is_refused_before_authentication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Gate(monkeypatch).connect()
    peer.send((64 * 1024 + 1).to_bytes(4, "big"))
    assert peer.is_closed, "refused by its length, before a byte of it is received"
    peer = Gate(monkeypatch).connect()
    handshake(peer, 1)
    authenticate(peer, 2, RIGHT)
    peer.send((64 * 1024 + 1).to_bytes(4, "big"))
    assert not peer.is_closed


@virtual_time
async def test_x27_who_does_not_authenticate_within_ten_seconds_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    slow, good = gate.connect(), gate.connect()
    handshake(good, 1)
    authenticate(good, 2, RIGHT)
    loop = asyncio.get_running_loop()
    began, number = loop.time(), 0
    while not slow.is_closed and loop.time() - began < 20:
        number += 1
        slow.ask(number, "ApiVersions", 3, ApiVersionsRequest())
        await asyncio.sleep(0.5)
        gate.listener.sweep(loop.time())
    assert 10 < loop.time() - began < 11
    assert not good.is_closed


@virtual_time
async def test_x27_who_sends_nothing_at_all_is_closed_within_ten_seconds_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    # Longer than a connection has to prove who it is.
    frontend = gate.listener.frontend
    frontend.limits = frontend.limits._replace(first_byte_ms_max=30_000)
    silent = gate.connect()
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not silent.is_closed:
        await asyncio.sleep(0.5)
        gate.listener.sweep(loop.time())
    assert 10 < loop.time() - began < 11


@virtual_time
async def test_x27_a_user_has_so_many_connections_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    peers = [gate.connect() for _ in range(4)]
    for peer in peers:
        handshake(peer, 1)
        authenticate(peer, 2, RIGHT)
    await until_closed(peers[3])
    refused = peers[3].answer(2)
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused.error_message == "User:alice has max.connections.per.user=3 connections already"
    assert [peer.is_closed for peer in peers] == [False, False, False, True]
    # Another one has room once one of them has gone.
    peers[0].connection.connection_lost(None)
    last = gate.connect()
    handshake(last, 1)
    authenticate(last, 2, RIGHT)
    assert last.answer(2).error_code == 0


@virtual_time
async def test_x10_no_answer_tells_an_unknown_user_from_a_wrong_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = []
    for token in (WRONG, b"\0nobody\0wrong"):
        peer = Gate(monkeypatch).connect()
        handshake(peer, 1)
        began = asyncio.get_running_loop().time()
        authenticate(peer, 2, token)
        await until_closed(peer)
        waited = round(asyncio.get_running_loop().time() - began, 3)
        answers.append((peer.answer(2), waited))
    assert answers[0] == answers[1]
    assert answers[0][0].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@virtual_time
async def test_x14_a_thousand_bad_tries_are_slowed_and_a_good_user_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delays = FailureDelays(Gate(monkeypatch).host.clock)
    assert max(delays.next_delay("10.0.0.1", "alice") for _ in range(1_000)) == 5
    assert delays.next_delay("10.0.0.2", "alice") == 5, "another address, the same user"
    assert delays.next_delay("10.0.0.2", "bob") == pytest.approx(0.2)
    gate = Gate(monkeypatch)
    for _ in range(8):
        bad = gate.connect()
        handshake(bad, 1)
        authenticate(bad, 2, WRONG)
    good = gate.connect()
    handshake(good, 1)
    authenticate(good, 2, RIGHT)
    assert good.answered == [1, 2], "only failures wait"


@virtual_time
async def test_x14_an_address_with_fifty_failures_learns_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    tools = gate.dispatcher._families[SaslTools]
    for _ in range(50):
        tools.failure_delays.next_delay("127.0.0.1", "bob")
    guess = gate.connect()
    handshake(guess, 1)
    authenticate(guess, 2, RIGHT)
    other = gate.connect()
    other.connection.host = "10.0.0.2"
    handshake(other, 1)
    authenticate(other, 2, RIGHT)
    assert other.answer(2).error_code == 0, "others do not feel it"
    broker, client = gate.connect(), IDENTITY.client("client")
    handshake(broker, 1, "SCRAM-SHA-512")
    authenticate(broker, 2, client.first())
    authenticate(broker, 3, client.final(broker.answer(2).auth_bytes))
    assert broker.connection.principal == ("User:__broker", True)
    await until_closed(guess)
    assert guess.answer(2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Too many log-ins from this address" in guess.answer(2).error_message
    # As many are looked at again as answers have left by now.
    later = gate.connect()
    handshake(later, 1)
    authenticate(later, 2, RIGHT)
    assert later.answer(2).error_code == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listeners": "SASL_PLAINTEXT://10.1.2.3:9"}, "PLAIN would send passwords over 10.1.2.3"),
        ({"listeners": "SASL_PLAINTEXT://0.0.0.0:9"}, "PLAIN would send passwords over 0.0.0.0"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": ""}, "PLAIN has no users"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "x required canary=1;"},
            "login module x is not offered",
        ),
        ({"sasl.enabled.mechanisms": ""}, "names no mechanism"),
        ({"listeners": "SASL_SSL://127.0.0.1:9"}, "a TLS listener needs a certificate"),
    ],
)
def test_x8_settings_that_are_not_safe_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"listener SASL_.*{message}") as caught:
        security_of(SETTINGS | changes)
    assert "s3cret" not in str(caught.value)


def test_x8_plain_without_tls_must_be_asked_for_by_name() -> None:
    asked = {"listeners": "SASL_PLAINTEXT://10.1.2.3:9", "sasl.plain.without.tls": "true"}
    assert "PLAIN" in security_of(SETTINGS | asked).mechanisms


# -- random sequences -----------------------------------------------------------------------------

SEQUENCES = 100_000 if os.environ.get("TIDELOG_LONG") else 400
_LENGTH = 6


class Model:
    """What a connection must do with each step: None where it is closed without an answer."""

    def __init__(self) -> None:
        self.state = "new"

    def expect(self, step: str) -> bool:
        """Whether the step is answered with success; the state moves on."""
        state, self.state = self.state, "closed"
        if step == "other" and state == "proven":
            self.state = "proven"
        elif step == "versions" and state in ("new", "proven"):
            self.state = state
        elif step == "handshake" and state == "new":
            self.state = "begun"
        elif step == "right" and state == "begun":
            self.state = "proven"
        return self.state != "closed"


STEPS: dict[str, Callable[[Peer, int], None]] = {
    "versions": lambda peer, at: peer.ask(at, "ApiVersions", 3, ApiVersionsRequest()),
    "handshake": handshake,
    "unknown": lambda peer, at: handshake(peer, at, "GSSAPI"),
    "right": lambda peer, at: authenticate(peer, at, RIGHT),
    "wrong": lambda peer, at: authenticate(peer, at, WRONG),
    "other": lambda peer, at: peer.ask(at, "Heartbeat", 4, HeartbeatRequest("g")),
    "cut off": lambda peer, at: peer.send(b"\0\0\0\x05\0\x24\0\2\0"),
    "too long": lambda peer, at: peer.send(b"\x7f\xff\xff\xff"),
}


def test_x7_no_sequence_of_requests_gets_past_authentication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random, ran, served = Random(15), 0, 0

    @virtual_time
    async def run() -> None:
        nonlocal ran, served
        gate = Gate(monkeypatch)
        for number in range(SEQUENCES):
            peer, model = gate.connect(), Model()
            # No address fails so often that it is not looked at any more.
            peer.connection.host = f"10.0.{number >> 8 & 255}.{number & 255}"
            for at in range(_LENGTH):
                step = random.choices(list(STEPS), (3, 6, 1, 6, 1, 3, 1, 1))[0]
                is_taken = model.expect(step)
                STEPS[step](peer, at)
                answered = at in peer.answered
                if not is_taken:
                    assert not answered or peer.answer(at).error_code
                    STEPS["other"](peer, _LENGTH)
                    assert _LENGTH not in peer.answered, "nothing is served behind a refusal"
                    break
                assert answered and not peer.is_closed, step
                served += step == "other"
            is_proven = peer.connection.principal.name == "User:alice"
            assert is_proven or model.state != "proven"
            ran += 1
            peer.close()
            await asyncio.sleep(0)

    run()
    assert ran == SEQUENCES
    assert served > SEQUENCES // 100, "some of them get through, as they should"
