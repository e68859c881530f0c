"""A client's log-in by SASL as a state machine: responses in, requests out.

Steps: SaslHandshake names the mechanism, then SaslAuthenticate carries its messages. Promises: a
refusal says whether the mechanism or the password was wrong; with SCRAM the broker proves that it
knows the password, too, or the log-in fails. Where the broker limits the session (KIP-368),
`is_due` says when to log in again: at 85 % of it.

Left out: SaslHandshake version 0, whose messages have no headers.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from tidelog.client.faults import AuthenticationError, MechanismError
from tidelog.client.security import SaslOptions
from tidelog.errors import ConfigError
from tidelog.host.clock import Clock
from tidelog.host.random import Random
from tidelog.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tidelog.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramClient, ScramError

_RENEWED_AT: Final = 0.85
# Brokers refuse a log-in that follows another one faster.
_RENEWAL_MIN_S: Final = 1.0
_TOKEN_BYTES_MAX: Final = 32 << 10

Request = tuple[str, object]
Messages = Generator[bytes, bytes, None]


class Credentials:
    """Who a client is, for all its connections; a salted password is computed once."""

    def __init__(self, sasl: SaslOptions, clock: Clock, random: Random) -> None:
        self.sasl = sasl
        self.clock = clock
        self._random = random
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def messages(self) -> Messages:
        """What the mechanism says; it is sent what the broker answers."""
        if self.sasl.mechanism == "PLAIN":
            return self._plain()
        return self._token() if self.sasl.mechanism == "OAUTHBEARER" else self._scram()

    def _plain(self) -> Messages:
        yield b"\0%b\0%b" % (self.sasl.username.encode(), self.sasl.password.encode())

    def _scram(self) -> Messages:
        mechanism = SCRAM_SHA_256 if self.sasl.mechanism.endswith("256") else SCRAM_SHA_512

        def salted(salt: bytes, iterations: int) -> bytes:
            if (salt, iterations) not in self._salted:
                password = self.sasl.password.encode()
                found = mechanism.salt_password(password, salt, iterations)
                # One is enough: another salt means that the password was set again.
                self._salted = {(salt, iterations): found}
            return self._salted[salt, iterations]

        # 122 random bits are in an id, twice that in the nonce.
        nonce = self._random.uuid().hex + self._random.uuid().hex
        client = ScramClient(mechanism, self.sasl.username, salted, nonce)
        signature = yield client.final((yield client.first()))
        client.finish(signature)

    def _token(self) -> Messages:
        refusal = yield b"n,,\x01auth=Bearer %b\x01\x01" % self._read_token().encode("ascii")
        if refusal:
            # RFC 7628: the client acknowledges the refusal, and the broker then says it in words.
            yield b"\x01"

    def _read_token(self) -> str:
        file = self.sasl.token_file
        if file is None:
            return self.sasl.token
        try:
            with open(file, encoding="ascii") as stream:
                token = stream.read(_TOKEN_BYTES_MAX).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not ASCII"
            raise ConfigError(f"sasl.oauthbearer.token.file: {file}: {reason}") from error
        if not token:
            raise ConfigError(f"sasl.oauthbearer.token.file: {file} is empty")
        return token


class Login:
    """The log-ins of one connection; `begin`, then `take` until it gives nothing more to send."""

    def __init__(self, credentials: Credentials, address: str) -> None:
        self._credentials = credentials
        self._address = address
        self._steps: Generator[Request, Any, None] | None = None
        self._renew_at: float | None = None

    @property
    def is_due(self) -> bool:
        """The session is about to end: log in again before anything else is sent."""
        renew_at = self._renew_at
        return renew_at is not None and self._credentials.clock.monotonic() >= renew_at

    def begin(self) -> Request:
        """The first request."""
        self._renew_at = None
        self._steps = self._log_in()
        return next(self._steps)

    def take(self, response: object) -> Request | None:
        """The request after this response; None once logged in. SecurityError where refused."""
        assert self._steps is not None
        try:
            return self._steps.send(response)
        except StopIteration:
            self._steps = None
            return None

    def _log_in(self) -> Generator[Request, Any, None]:
        sasl, address = self._credentials.sasl, self._address
        handshake = yield "SaslHandshake", SaslHandshakeRequest(sasl.mechanism)
        if handshake.error_code:
            raise MechanismError(
                address, sasl.mechanism, handshake.mechanisms, handshake.error_code
            )
        messages = self._credentials.messages()
        message = next(messages)
        while True:
            answer = yield "SaslAuthenticate", SaslAuthenticateRequest(message)
            if answer.error_code:
                raise AuthenticationError(address, sasl.mechanism, answer.error_message or "")
            try:
                message = messages.send(answer.auth_bytes)
            except StopIteration:
                break
            except ScramError as error:
                # The broker has not refused us; it could not prove what it is.
                raise AuthenticationError(address, sasl.mechanism, str(error)) from error
        if answer.session_lifetime_ms > 0:
            lifetime_s = answer.session_lifetime_ms / 1000
            used_s = max(lifetime_s * _RENEWED_AT, min(lifetime_s, _RENEWAL_MIN_S))
            self._renew_at = self._credentials.clock.monotonic() + used_s
