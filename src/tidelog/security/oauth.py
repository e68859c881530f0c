"""SASL's OAUTHBEARER (RFC 7628): one message with a token, a JWT that somebody else has signed.

    n,[a=name],^A auth=Bearer token ^A [key=value ^A]... ^A        (^A is the byte 1)

A token is taken where a known key has signed it, by an algorithm with a public key; where it is for
this audience, by this issuer, begun and not over, give or take the clock's skew; and where its
subject is named. Every fault is a `SaslError`, whose text names what was wrong, never the token.
Signatures are checked by PyJWT, of the extra `security`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tidelog.errors import ConfigError
from tidelog.security.sasl import SaslError

MESSAGE_BYTES_MAX: Final = 32 * 1024
SKEW_SECONDS_MAX: Final = 30
_MESSAGE: Final = re.compile(
    rb"n,(?:a=(?P<name>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01"
)
_BEARER: Final = re.compile(rb"[Bb]earer +([A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]*)")
# By the type of the key: a public key is never the secret of a symmetric algorithm.
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_KEYS_MAX: Final = 100
_TIME_S_MAX: Final = 1e15


@dataclass(slots=True, frozen=True)
class Key:
    """A public key and the algorithms that it may be used with."""

    public: Any
    algorithms: tuple[str, ...]


class Keys(Protocol):
    """The keys that are known now."""

    def find(self, key_id: str | None) -> Key | None:
        """The key of a token's header; None where it is not known, which may have it asked for."""
        ...


@dataclass(slots=True, frozen=True)
class TokenRules:
    """What a token must say."""

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    subject_claim: str = "sub"
    skew_s: int = SKEW_SECONDS_MAX
    # Whether a token that nobody has signed is taken: for development alone.
    allows_unsigned: bool = False


class OAuthServer:
    """The side that is shown a token; `now_s` is the time since the epoch."""

    def __init__(self, rules: TokenRules, keys: Keys | None, now_s: Callable[[], float]) -> None:
        self.user = ""
        self.is_complete = False
        # When the token ends, since the epoch.
        self.ends_at_s = 0.0
        self._rules = rules
        self._keys = keys
        self._now_s = now_s

    def answer(self, message: bytes) -> bytes:
        if self.is_complete:
            raise SaslError("a message after the last one")
        acting_as, token = _parsed(message)
        header, claims = _unverified(token)
        if header.get("alg") == "none":
            if not self._rules.allows_unsigned or not token.endswith("."):
                raise SaslError("the token is not signed")
        else:
            claims = self._verified(token, header)
        self._check(claims)
        user = claims.get(self._rules.subject_claim)
        if not isinstance(user, str) or not user.strip():
            raise SaslError(f"the token's claim {self._rules.subject_claim} names nobody")
        self.user = user
        if acting_as and acting_as != user:
            raise SaslError("a user may only act as itself")
        self.is_complete = True
        return b""

    def _verified(self, token: str, header: Mapping[str, Any]) -> dict[str, Any]:
        key_id, algorithm = header.get("kid"), header.get("alg")
        if header.get("crit"):
            raise SaslError("the token has critical extensions, and none is known")
        if key_id is not None and not isinstance(key_id, str):
            raise SaslError("the token's key id is no text")
        key = None if self._keys is None else self._keys.find(key_id)
        if key is None:
            raise SaslError("the key that has signed the token is not known")
        if algorithm not in key.algorithms:
            raise SaslError("the token's algorithm is not one of its key")
        jwt = _jwt()
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.public,
                algorithms=[algorithm],
                # Times, audience and issuer are looked at here, by the broker's clock.
                options={
                    "verify_signature": True,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,
                    "verify_iss": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except jwt.exceptions.PyJWTError as error:
            raise SaslError(f"the token's signature is not good: {type(error).__name__}") from None
        return claims

    def _check(self, claims: Mapping[str, Any]) -> None:
        rules, now = self._rules, self._now_s()
        ends = _time(claims, "exp")
        if ends is None or now >= ends + rules.skew_s:
            raise SaslError("the token has expired, or never does")
        for name in ("nbf", "iat"):
            begins = _time(claims, name)
            if begins is not None and begins - rules.skew_s > now:
                raise SaslError(f"the token's {name} is in the future")
        if rules.issuer and claims.get("iss") != rules.issuer:
            raise SaslError("the token is of another issuer")
        if rules.audiences:
            audience = claims.get("aud")
            named = audience if isinstance(audience, list) else [audience]
            if not any(isinstance(each, str) and each in rules.audiences for each in named):
                raise SaslError("the token is for another audience")
        self.ends_at_s = ends


def _parsed(message: bytes) -> tuple[str, str]:
    """The name to act as, and the token."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise SaslError(f"a message of {len(message)} bytes")
    found = _MESSAGE.fullmatch(message)
    if found is None:
        raise SaslError("the message is malformed")
    pairs = [each.partition(b"=") for each in found["pairs"].split(b"\x01") if each]
    tokens = [value for name, _, value in pairs if name == b"auth"]
    bearer = _BEARER.fullmatch(tokens[0]) if len(tokens) == 1 else None
    if bearer is None:
        raise SaslError("the message has no bearer token")
    try:
        return (found["name"] or b"").decode(), bearer[1].decode()
    except UnicodeDecodeError:
        raise SaslError("the message is not UTF-8") from None


def _unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    header, claims, _ = token.split(".")
    return _object(header), _object(claims)


def _object(text: str) -> dict[str, Any]:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        found = json.loads(data)
    except (binascii.Error, ValueError, RecursionError):
        raise SaslError("a part of the token is no JSON") from None
    if not isinstance(found, dict):
        raise SaslError("a part of the token is no object")
    return found


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    # No clock goes on for thirty million years, and such a number need not be a float at all.
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < _TIME_S_MAX
    ):
        raise SaslError(f"the token's {name} is no time")
    return float(value)


def parse_keys(text: str) -> dict[str | None, Key]:
    """The keys of a JWKS by their ids; ConfigError where it is none, or holds none of use."""
    try:
        listed = json.loads(text)["keys"]
        assert isinstance(listed, list)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
        raise ConfigError("this is no JWKS: a JSON object with a list of keys") from None
    keys: dict[str | None, Key] = {}
    for each in listed[:_KEYS_MAX]:
        found = _key(each) if isinstance(each, dict) else None
        key_id = each.get("kid") if isinstance(each, dict) else None
        if found is not None and (key_id is None or isinstance(key_id, str)):
            keys[key_id] = found
    if not keys:
        raise ConfigError("the JWKS has no public key for signatures by RSA, EC or Ed25519")
    return keys


def _key(described: Mapping[str, Any]) -> Key | None:
    """A public key for signatures; None for any other."""
    kind, curve, stated = described.get("kty"), described.get("crv"), described.get("alg")
    algorithms: tuple[str, ...] = ()
    if kind == "RSA":
        algorithms = _RSA
    elif kind == "EC" and curve in _CURVES:
        algorithms = (_CURVES[curve],)
    elif kind == "OKP" and curve == "Ed25519":
        algorithms = ("EdDSA",)
    if stated is not None:
        algorithms = tuple(each for each in algorithms if each == stated)
    if not algorithms or described.get("use", "sig") != "sig" or "d" in described:
        return None
    jwt = _jwt()
    try:
        return Key(jwt.PyJWK(dict(described), algorithm=algorithms[0]).key, algorithms)
    except (jwt.exceptions.PyJWTError, ValueError, TypeError):
        return None


def _jwt() -> Any:
    try:
        import jwt
    except ImportError:
        raise ConfigError("OAUTHBEARER needs the extra: pip install 'tidelog[security]'") from None
    return jwt
