"""OAUTHBEARER: which tokens are taken, and thirty that are not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tidelog.errors import ConfigError
from tidelog.security.oauth import Key, OAuthServer, TokenRules, parse_keys
from tidelog.security.sasl import SaslError

NOW = 1_800_000_000
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
STRANGER = rsa.generate_private_key(65537, 2048)
RULES = TokenRules(("tidelog", "other"), "https://issuer.example")


def jwk(key: Any, key_id: str | None, **changes: object) -> dict[str, object]:
    algorithm: Any = jwt.algorithms.RSAAlgorithm
    if isinstance(key, ec.EllipticCurvePrivateKey):
        algorithm = jwt.algorithms.ECAlgorithm
    described: dict[str, object] = json.loads(algorithm.to_jwk(key.public_key()))
    return described | ({} if key_id is None else {"kid": key_id}) | changes


JWKS = json.dumps({"keys": [jwk(RSA_KEY, "rsa"), jwk(EC_KEY, "ec")]})


class Known:
    """The keys of a JWKS, and what was asked for in vain."""

    def __init__(self, text: str = JWKS) -> None:
        self.keys = parse_keys(text)
        self.missed: list[str | None] = []

    def find(self, key_id: str | None) -> Key | None:
        if key_id not in self.keys:
            self.missed.append(key_id)
        return self.keys.get(key_id)


def claims(**changes: object) -> dict[str, object]:
    said = {
        "sub": "alice",
        "iss": "https://issuer.example",
        "aud": "tidelog",
        "exp": NOW + 600,
        "nbf": NOW - 10,
        "iat": NOW - 10,
    } | changes
    return {name: value for name, value in said.items() if value is not None}


def signed(
    said: dict[str, object] | None = None,
    key: Any = RSA_KEY,
    algorithm: str = "RS256",
    key_id: str | None = "rsa",
    **headers: object,
) -> str:
    named = headers if key_id is None else {"kid": key_id, **headers}
    return jwt.encode(said or claims(), key, algorithm=algorithm, headers=named)


def message(token: str, name: str = "", extra: str = "") -> bytes:
    who = f"a={name}" if name else ""
    return f"n,{who},\x01auth=Bearer {token}\x01{extra}\x01".encode()


def server(rules: TokenRules = RULES, known: Known | None = None) -> OAuthServer:
    return OAuthServer(rules, known or Known(), lambda: NOW)


@pytest.mark.parametrize(
    "token",
    [
        signed(),
        signed(algorithm="RS512"),
        signed(algorithm="PS256"),
        signed(key=EC_KEY, algorithm="ES256", key_id="ec"),
        signed(claims(aud=["x", "other"])),
        signed(claims(nbf=None, iat=None)),
        signed(claims(exp=NOW - 29)),
        signed(claims(nbf=NOW + 29)),
        signed(claims(exp=NOW + 0.5)),
    ],
)
def test_a_good_token_is_taken(token: str) -> None:
    taken = server()
    assert taken.answer(message(token)) == b""
    assert (taken.is_complete, taken.user) == (True, "alice")


def test_a_session_ends_with_its_token() -> None:
    taken = server()
    taken.answer(message(signed(), "alice", "traceId=x\x01"))
    assert taken.ends_at_s == NOW + 600
    with pytest.raises(SaslError):
        taken.answer(message(signed()))


def test_another_claim_may_name_the_user() -> None:
    taken = server(TokenRules(RULES.audiences, RULES.issuer, "client_id"))
    taken.answer(message(signed(claims(client_id="pump"))))
    assert taken.user == "pump"


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(header: dict[str, object], said: dict[str, object] | None = None) -> str:
    return f"{part(header)}.{part(said or claims())}."


def confused(algorithm: str = "HS256") -> str:
    """A token signed with the public key, as if it were a shared secret."""
    secret = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    body = f"{part({'alg': algorithm, 'kid': 'rsa', 'typ': 'JWT'})}.{part(claims())}"
    mac = hmac.digest(secret, body.encode(), hashlib.sha256)
    return f"{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def changed(change: Callable[[list[str]], None]) -> str:
    parts = signed().split(".")
    change(parts)
    return ".".join(parts)


FORGED = {
    "alg none": unsigned({"alg": "none"}),
    "alg None": unsigned({"alg": "None"}),
    "alg NONE with a kid": unsigned({"alg": "NONE", "kid": "rsa"}),
    "alg empty": unsigned({"alg": "", "kid": "rsa"}),
    "no alg": unsigned({"kid": "rsa"}),
    "alg none with a signature": unsigned({"alg": "none"}) + signed().split(".")[2],
    "the signature removed": changed(lambda parts: parts.__setitem__(2, "")),
    "the public key as a secret": confused(),
    "the public key as a secret, 512": confused("HS512"),
    "HS256 with an empty secret": signed(key="x" * 32, algorithm="HS256"),
    "a stranger's key": signed(key=STRANGER),
    "a stranger's key with its own jwk": signed(key=STRANGER, jwk=jwk(STRANGER, "rsa")),
    "a stranger's key by address": signed(key=STRANGER, jku="https://mallory.example/jwks"),
    "an unknown key id": signed(key_id="other"),
    "a path as key id": signed(key_id="../../../../dev/null"),
    "SQL as key id": signed(key_id="x' UNION SELECT 'secret"),
    "no key id among several keys": signed(key_id=None),
    "the key of another algorithm": signed(key_id="ec"),
    "a critical extension": signed(crit=["b64"], b64=True),
    "claims changed": changed(lambda parts: parts.__setitem__(1, part(claims(sub="admin")))),
    "header changed": changed(lambda parts: parts.__setitem__(0, part({"alg": "RS512"}))),
    "expired": signed(claims(exp=NOW - 31)),
    "no expiry": signed(claims(exp=None)),
    "expiry as text": signed(claims(exp=None)).replace(
        signed(claims(exp=None)).split(".")[1], part(claims(exp=str(NOW + 600)))
    ),
    "not begun": signed(claims(nbf=NOW + 31)),
    "issued in the future": signed(claims(iat=NOW + 31)),
    "another issuer": signed(claims(iss="https://issuer.example.mallory")),
    "no issuer": signed(claims(iss=None)),
    "another audience": signed(claims(aud="tidelog2")),
    "no audience": signed(claims(aud=None)),
    "an audience that holds ours": signed(claims(aud="xtidelogx")),
    "no subject": signed(claims(sub=None)),
    "an empty subject": signed(claims(sub=" ")),
    "a list as subject": signed(claims()).replace(
        signed(claims()).split(".")[1], part(claims(sub=["alice"]))
    ),
}


@pytest.mark.parametrize("token", FORGED.values(), ids=FORGED.keys())
def test_x12_a_forged_token_is_refused(token: str) -> None:
    refused = server()
    with pytest.raises(SaslError) as caught:
        refused.answer(message(token))
    assert not refused.is_complete
    assert token not in str(caught.value)


def test_x12_there_are_at_least_thirty_forged_tokens() -> None:
    assert len(FORGED) >= 30


@pytest.mark.parametrize("value", [True, "1", [1], {"a": 1}, 1e999, 10**400, 1e16, -1])
def test_x12_a_time_that_is_none_is_refused(value: object) -> None:
    text = part(claims(exp=value))
    body = f"{part({'alg': 'none'})}.{text}."
    with pytest.raises(SaslError):
        server(TokenRules(allows_unsigned=True)).answer(message(body))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        message(signed()) + b"x",
        message(signed(), extra=f"auth=Bearer {signed()}\x01"),
        message("!.!.!"),
        message("W10.W10."),
        b"n,,\x01auth=Bearer " + b"a" * 40_000 + b".b.c\x01\x01",
        message(f"{part({'alg': 'none'})}.{'W' * 20_000}."),
    ],
)
def test_a_malformed_message_is_refused(data: bytes) -> None:
    with pytest.raises(SaslError):
        server().answer(data)


def test_x8_a_token_does_not_let_a_user_act_as_another() -> None:
    with pytest.raises(SaslError, match="act as itself"):
        server().answer(message(signed(), "admin"))


def test_a_token_that_nobody_signed_is_taken_only_where_that_is_asked_for() -> None:
    token = unsigned({"alg": "none"}, claims(iss=None, aud=None))
    taken = OAuthServer(TokenRules(allows_unsigned=True), None, lambda: NOW)
    taken.answer(message(token))
    assert taken.user == "alice"
    with pytest.raises(SaslError, match="not signed"):
        OAuthServer(TokenRules(), None, lambda: NOW).answer(message(token))


def test_only_public_keys_for_signatures_are_taken_of_a_jwks() -> None:
    secret = {"kty": "oct", "kid": "secret", "k": "c2VjcmV0", "alg": "HS256"}
    listed = [
        jwk(RSA_KEY, "good"),
        jwk(RSA_KEY, "for encryption", use="enc"),
        jwk(RSA_KEY, "odd", alg="HS256"),
        jwk(RSA_KEY, "bound", alg="PS256"),
        {**jwk(RSA_KEY, "cut"), "n": ""},
        secret,
        "nothing",
    ]
    keys = parse_keys(json.dumps({"keys": listed}))
    assert {"good", "bound"} <= keys.keys() <= {"good", "bound", "cut"}
    assert keys["bound"].algorithms == ("PS256",)
    assert not any("HS" in each for key in keys.values() for each in key.algorithms)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": 1}', '{"keys": []}', "{" * 99_999])
def test_what_is_no_jwks_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="JWKS"):
        parse_keys(text)
