"""SCRAM by the examples of its specifications, and against peers that cheat."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable
from functools import cache

import pytest

from tidelog.security.broker_identity import BrokerIdentity
from tidelog.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MESSAGE_BYTES_MAX,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Credential,
    Mechanism,
    ScramClient,
    ScramError,
    ScramServer,
    credential_of,
)

SALT = b"0123456789abcdef"
MECHANISMS = pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])


def salting(mechanism: Mechanism, password: str) -> Callable[[bytes, int], bytes]:
    return lambda salt, iterations: mechanism.salt_password(password.encode(), salt, iterations)


def client(mechanism: Mechanism, user: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient(mechanism, user, salting(mechanism, password), "client-nonce")


@cache
def salted_pencil(mechanism: Mechanism) -> bytes:
    return mechanism.salt_password(b"pencil", SALT, ITERATIONS_MIN)


def server(mechanism: Mechanism, nonce: str = "server-nonce") -> ScramServer:
    known = credential_of(mechanism, salted_pencil(mechanism), SALT, ITERATIONS_MIN)
    return ScramServer(mechanism, lambda _: known, nonce)


@pytest.mark.parametrize(
    ("mechanism", "nonces", "salt", "proof", "signature"),
    [
        pytest.param(
            Mechanism("SCRAM-SHA-1", "sha1"),
            ("fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j"),
            "QSXCR+Q6sek8bf92",
            "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            id="RFC 5802",
        ),
        pytest.param(
            SCRAM_SHA_256,
            ("rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"),
            "W22ZaJ0SNY7soEsUEjb6gQ==",
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            id="RFC 7677",
        ),
    ],
)
def test_an_exchange_is_the_one_of_the_specification(
    mechanism: Mechanism, nonces: tuple[str, str], salt: str, proof: str, signature: str
) -> None:
    salted = salting(mechanism, "pencil")
    raw_salt = base64.b64decode(salt)
    known = credential_of(mechanism, salted(raw_salt, 4096), raw_salt, 4096)
    ours = ScramClient(mechanism, "user", salted, nonces[0])
    theirs = ScramServer(mechanism, lambda _: known, nonces[1])
    first = ours.first()
    assert first == f"n,,n=user,r={nonces[0]}".encode()
    challenge = theirs.answer(first)
    assert challenge == f"r={nonces[0]}{nonces[1]},s={salt},i=4096".encode()
    final = ours.final(challenge)
    assert final == f"c=biws,r={nonces[0]}{nonces[1]},p={proof}".encode()
    assert not theirs.is_complete
    verified = theirs.answer(final)
    assert verified == f"v={signature}".encode()
    ours.finish(verified)
    assert theirs.is_complete and theirs.user == "user"


@MECHANISMS
def test_names_with_commas_and_equal_signs_arrive_whole(mechanism: Mechanism) -> None:
    for name in ("a,b", "a=b", "=2C", "=3D", "ü", "a=,=b"):
        theirs = server(mechanism)
        theirs.answer(client(mechanism, name).first())
        assert theirs.user == name


@MECHANISMS
def test_a_wrong_password_is_refused_and_proves_nothing(mechanism: Mechanism) -> None:
    ours, theirs = client(mechanism, password="pen"), server(mechanism)
    final = ours.final(theirs.answer(ours.first()))
    with pytest.raises(ScramError, match="password is wrong"):
        theirs.answer(final)
    assert not theirs.is_complete


@MECHANISMS
def test_a_proof_of_the_other_mechanism_is_refused(mechanism: Mechanism) -> None:
    other = SCRAM_SHA_512 if mechanism is SCRAM_SHA_256 else SCRAM_SHA_256
    ours, theirs = client(other), server(mechanism)
    final = ours.final(theirs.answer(ours.first()))
    with pytest.raises(ScramError, match="wrong length"):
        theirs.answer(final)


@MECHANISMS
def test_a_recorded_exchange_cannot_be_played_again(mechanism: Mechanism) -> None:
    ours, recorded = client(mechanism), server(mechanism, nonce="first")
    final = ours.final(recorded.answer(ours.first()))
    recorded.answer(final)
    again = server(mechanism, nonce="second")
    again.answer(ours.first())
    with pytest.raises(ScramError, match="nonce"):
        again.answer(final)


@MECHANISMS
def test_a_nonce_that_only_ends_like_ours_is_refused(mechanism: Mechanism) -> None:
    """CVE-2024-56128: a nonce with anything before the server's own part was accepted."""
    ours, theirs = client(mechanism), server(mechanism)
    challenge = theirs.answer(ours.first())
    final = ours.final(challenge.replace(b"r=client-nonce", b"r=client-nonceX"))
    with pytest.raises(ScramError, match="nonce"):
        theirs.answer(final)


@MECHANISMS
def test_the_client_refuses_a_server_that_does_not_know_the_password(mechanism: Mechanism) -> None:
    ours, theirs = client(mechanism), server(mechanism)
    ours.final(theirs.answer(ours.first()))
    with pytest.raises(ScramError, match="does not know"):
        ours.finish(b"v=" + base64.b64encode(bytes(32)))
    with pytest.raises(ScramError):
        ours.finish(b"e=invalid-proof")
    with pytest.raises(ScramError, match="does not know"):
        client(mechanism).finish(b"v=" + base64.b64encode(b"before any challenge"))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=client-nonce,s=MDEyMzQ1Njc=,i=4096",
        b"r=other,s=MDEyMzQ1Njc=,i=4096",
        b"r=client-nonceX,s=MDEyMzQ1Njc=,i=4095",
        b"r=client-nonceX,s=MDEyMzQ1Njc=,i=%d" % (ITERATIONS_MAX + 1),
        b"r=client-nonceX,s=MDEyMzQ1Njc=,i=-1",
        b"r=client-nonceX,s=MDEyMzQ1Njc=,i=" + b"9" * 4000,
        b"r=client-nonceX,s=,i=4096",
        b"r=client-nonceX,s=!,i=4096",
        b"m=ext,r=client-nonceX,s=MDEyMzQ1Njc=,i=4096",
        b"r=client-nonceX," + b"s" * MESSAGE_BYTES_MAX,
    ],
)
def test_the_client_refuses_a_challenge_that_is_weak_costly_or_malformed(challenge: bytes) -> None:
    with pytest.raises(ScramError):
        client(SCRAM_SHA_512).final(challenge)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b",",
        b"n,,",
        b"n,,r=x,n=user",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=admin,n=user,r=x",
        b"n,admin,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=us\0er,r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=" + b"x" * MESSAGE_BYTES_MAX,
    ],
)
def test_the_server_refuses_a_first_message_that_is_malformed(first: bytes) -> None:
    with pytest.raises(ScramError):
        server(SCRAM_SHA_512).answer(first)


@pytest.mark.parametrize(
    ("what", "other"),
    [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=b"),
        (b",p=", b",q="),
        (b"c=biws,", b""),
        (b",p=", b",p=AAAA"),
        (b",p=", b",p=!"),
    ],
)
def test_the_server_refuses_a_last_message_that_is_malformed(what: bytes, other: bytes) -> None:
    ours, theirs = client(SCRAM_SHA_512), server(SCRAM_SHA_512)
    final = ours.final(theirs.answer(ours.first()))
    assert what in final
    with pytest.raises(ScramError):
        theirs.answer(final.replace(what, other, 1))
    assert not theirs.is_complete


def test_nothing_follows_the_last_message() -> None:
    ours, theirs = client(SCRAM_SHA_512), server(SCRAM_SHA_512)
    final = ours.final(theirs.answer(ours.first()))
    theirs.answer(final)
    with pytest.raises(ScramError, match="after the last"):
        theirs.answer(final)


@pytest.mark.parametrize("header", [b"y,,", b"n,a=user,"])
def test_clients_that_could_bind_a_channel_or_that_name_themselves_are_served(
    header: bytes,
) -> None:
    mechanism, theirs = SCRAM_SHA_512, server(SCRAM_SHA_512)
    challenge = theirs.answer(header + b"n=user,r=x")
    final = b"c=%b,r=xserver-nonce" % base64.b64encode(header)
    exchange = b",".join((b"n=user,r=x", challenge, final))
    key = mechanism.mac(salted_pencil(mechanism), b"Client Key")
    signature = mechanism.mac(mechanism.digest(key), exchange)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    theirs.answer(final + b",p=" + base64.b64encode(proof))
    assert theirs.is_complete


def test_a_weak_credential_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="too few"):
        credential_of(SCRAM_SHA_256, b"x", SALT, 4095)
    with pytest.raises(ValueError, match="too few"):
        credential_of(SCRAM_SHA_256, b"x", b"salt", 4096)


def test_a_credential_does_not_show_its_keys() -> None:
    assert "secret" not in repr(Credential(SALT, 4096, b"secret", b"secret"))


def test_mutations_of_an_exchange_never_authenticate_and_raise_nothing_else() -> None:
    chance = random.Random(7)
    salted = salted_pencil(SCRAM_SHA_256)
    tried = 0
    for _ in range(3_000):
        ours = ScramClient(SCRAM_SHA_256, "user", lambda *_: salted, "client-nonce")
        theirs = server(SCRAM_SHA_256)
        which = chance.randrange(2)
        try:
            first = ours.first()
            challenge = theirs.answer(mutated(first, chance) if which == 0 else first)
            final = ours.final(challenge)
            theirs.answer(mutated(final, chance) if which else final)
        except ScramError:
            tried += 1
        assert not theirs.is_complete
    assert tried > 2_500


def mutated(message: bytes, chance: random.Random) -> bytes:
    """The message with one byte changed, lost or doubled."""
    at = chance.randrange(len(message))
    kind = chance.randrange(3)
    byte = message[at : at + 1]
    if kind == 0:
        byte = bytes([(message[at] + chance.randrange(1, 256)) % 256])
    return message[:at] + (byte, b"", byte * 2)[kind] + message[at + 1 :]


def test_a_broker_that_is_alone_salts_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    salted: list[int] = []
    salt = hashlib.pbkdf2_hmac

    def counted(name: str, password: bytes, salt_: bytes, iterations: int) -> bytes:
        salted.append(iterations)
        return salt(name, password, salt_, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    identity = BrokerIdentity(bytes(32))
    assert identity.secret_of("x") and not salted
    assert identity.credential is identity.credential
    identity.client("nonce")
    assert salted == [ITERATIONS_MIN]
