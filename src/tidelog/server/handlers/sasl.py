"""SaslHandshake (17, versions 0 to 1), SaslAuthenticate (36, versions 0 to 2).

Behaviour: on a SASL listener only ApiVersions and these two are accepted before a connection is
authenticated, in frames of at most 64 KiB and within ten seconds. On other listeners a connection
starts as anonymous, or as its certificate says, and only brokers authenticate: a handshake for
another mechanism than theirs is answered ILLEGAL_SASL_STATE, as in Kafka. A handshake names a
mechanism; after it only SaslAuthenticate is accepted until the exchange ends. A request out of this
order is answered ILLEGAL_SASL_STATE, an unsupported mechanism UNSUPPORTED_SASL_MECHANISM with the
supported ones, a wrong name or password SASL_AUTHENTICATION_FAILED; each closes the connection. The
last is answered late, at most ten times a second for each address and for each user. While fifty of
them wait for one address, its further attempts are refused unchecked. An unknown user gets the same
answer as a wrong password.

Mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Brokers use SCRAM-SHA-512 on any
listener; if it is not enabled for clients, they learn at the end of the exchange that it is not
supported. An OAUTHBEARER session ends with its token. A token that is not accepted is answered
SASL_AUTHENTICATION_FAILED immediately. Kafka first answers `{"status":"invalid_token"}` without an
error, which aiokafka, franz-go and kafkajs misread as a success or as nonsense.

A connection may authenticate again (KIP-368), as the same principal with the same mechanism, at the
earliest a second after it last did. If `connections.max.reauth.ms` ends its session and it did not,
the next request closes it. If a user is deleted, or gets another password, its connections are
closed within a second after the broker learns of it.
Versions: after version 0 of the handshake the mechanism's messages have no headers, and a refusal
closes the connection without an answer.
Gaps: Kerberos is not offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidelog.config.security_settings import OAUTHBEARER, PLAIN
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tidelog.security.authorizer import Principal
from tidelog.security.broker_identity import BROKER_USER, BrokerIdentity
from tidelog.security.failure_delays import FLOODED_SECONDS
from tidelog.security.oauth import OAuthServer
from tidelog.security.plain import PlainServer
from tidelog.security.sasl import Login, SaslError, SaslServer
from tidelog.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramServer
from tidelog.server.routes import served
from tidelog.server.tools import SaslContext

T = TypeVar("T")

_SCRAM: Final = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}
_BROKERS_MECHANISM: Final = BrokerIdentity.mechanism.name
_BROKER: Final = Principal(f"User:{BROKER_USER}", is_broker=True)
_PASSWORD: Final = "the user or the password is wrong"
_FLOODED: Final = (
    "Too many log-ins from this address have failed; none is looked at for some seconds."
)
_WHAT_IS_WRONG: Final = {OAUTHBEARER: "the token is not accepted"}
# As in Kafka: a client that authenticates more often than that is not well.
_AGAIN_SECONDS_MIN: Final = 1.0


@served(is_brief=True)
def sasl_handshake(
    request: SaslHandshakeRequest, context: SaslContext
) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
    connection = context.connection
    offered = _offered(context)
    if connection.sasl is not None or not _may_begin(context):
        refused = SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, offered)
        return _refuse(refused, context, "a second SASL handshake")
    if not connection.listener.security.is_sasl and request.mechanism != _BROKERS_MECHANISM:
        refused = SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, [])
        return _refuse(refused, context, "a SASL handshake on a listener without SASL")
    server = _server(request.mechanism, context)
    login = connection.login
    if server is None or (login is not None and login.mechanism != request.mechanism):
        refused = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered)
        return _refuse(refused, context, "a SASL mechanism that is not served")
    connection.begin_authentication(server, request.mechanism, without_headers=context.version == 0)
    return SaslHandshakeResponse(mechanisms=offered)


def _may_begin(context: SaslContext) -> bool:
    """Whether a connection may authenticate now: at first, or again after a while."""
    connection = context.connection
    if connection.login is None:
        return True
    age = asyncio.get_running_loop().time() - connection.authenticated_at
    return connection.listener.security.is_sasl and age >= _AGAIN_SECONDS_MIN


def _offered(context: SaslContext) -> list[str]:
    """The mechanisms of this listener; where none is for clients, that of the brokers."""
    security = context.connection.listener.security
    if security.is_sasl:
        return list(security.mechanisms)
    return [] if context.tools.identity() is None else [_BROKERS_MECHANISM]


def _server(mechanism: str, context: SaslContext) -> SaslServer | None:
    """Our side of an exchange; None where the mechanism is not served here."""
    security = context.connection.listener.security
    is_offered = mechanism in security.mechanisms
    if mechanism == PLAIN and is_offered:
        return PlainServer(security.plain_users.get)
    if mechanism == OAUTHBEARER and is_offered and security.tokens is not None:
        return security.tokens.server()
    identity = context.tools.identity()
    if identity is None or not (is_offered or mechanism == _BROKERS_MECHANISM):
        return None
    scram = _SCRAM[mechanism]
    # Without an offer brokers alone are known.
    stored = context.image.scram_credentials if is_offered else {}
    nonce = context.tools.random.uuid().hex
    return ScramServer(scram, context.tools.scram_users.finder(scram, identity, stored), nonce)


@served(is_brief=True)
def sasl_authenticate(
    request: SaslAuthenticateRequest, context: SaslContext
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    connection = context.connection
    sasl, mechanism = connection.sasl, connection.sasl_mechanism
    if sasl is None:
        refused = SaslAuthenticateResponse(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate came without a SaslHandshake before it"
        )
        return _refuse(refused, context, "SaslAuthenticate without a handshake")
    if _is_flooded(sasl, context):
        refused = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, _FLOODED)
        return _refuse(refused, context, "its address fails too often", FLOODED_SECONDS)
    login: Login | None = None
    try:
        token = sasl.answer(request.auth_bytes)
        if sasl.is_complete:
            login = _login(sasl, context)
    except SaslError as error:
        connection.listener.authentication_failed(connection, str(error))
        refused = _refusal(mechanism, sasl.user, context)
        delay = context.tools.failure_delays.next_delay(connection.host, sasl.user)
        return _refuse(refused, context, "authentication failed", delay)
    if login is None:
        return SaslAuthenticateResponse(auth_bytes=token)
    if refusal := connection.listener.user_refusal(connection, login.principal):
        full = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, refusal)
        delay = context.tools.failure_delays.next_delay(connection.host)
        return _refuse(full, context, refusal, delay)
    connection.authenticated(login)
    return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=login.lifetime_ms)


def _is_flooded(sasl: SaslServer, context: SaslContext) -> bool:
    """Whether a try is not looked at, because its address has failed too often by now.

    Brokers are let through, who share an address with their clients at times. Nobody guesses what
    they know.
    """
    if isinstance(sasl, ScramServer) and (sasl.credential is None or sasl.user == BROKER_USER):
        return False
    return context.tools.failure_delays.is_flooded(context.connection.host)


def _refusal(mechanism: str, user: str, context: SaslContext) -> SaslAuthenticateResponse:
    """The answer to a failure; what was wrong is in the log, and must not help to guess names."""
    security = context.connection.listener.security
    if security.is_sasl and mechanism not in security.mechanisms and user != BROKER_USER:
        # Its handshake was taken because brokers may come by it, on whichever listener.
        return SaslAuthenticateResponse(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"{mechanism} is not enabled on this listener, which offers"
            f" {', '.join(security.mechanisms)}",
        )
    return SaslAuthenticateResponse(
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        f"Authentication by {mechanism} failed: {_what_is_wrong(mechanism, context)}",
    )


def _what_is_wrong(mechanism: str, context: SaslContext) -> str:
    """As much as a stranger may know."""
    if not context.connection.listener.security.is_sasl:
        return "this listener authenticates brokers alone"
    return _WHAT_IS_WRONG.get(mechanism, _PASSWORD)


def _login(sasl: SaslServer, context: SaslContext) -> Login:
    """What a complete exchange proves; SaslError where it proves too little by now."""
    connection = context.connection
    mechanism, security = connection.sasl_mechanism, connection.listener.security
    user, before = sasl.user, connection.login
    # Nobody but brokers has their name, by their mechanism.
    is_broker = user == BROKER_USER and mechanism == _BROKERS_MECHANISM
    principal = _BROKER if is_broker else Principal(f"User:{user}", is_broker=False)
    if before is not None and before.principal != principal:
        raise SaslError("another principal than before")
    if is_broker:
        return Login(principal, mechanism)
    session_ms = security.session_ms(mechanism)
    if isinstance(sasl, OAuthServer):
        assert security.tokens is not None
        left_ms = security.tokens.remaining_ms(sasl.ends_at_s)
        return Login(principal, mechanism, lifetime_ms=min(left_ms, session_ms or left_ms))
    if isinstance(sasl, ScramServer):
        is_current = _scram_check(user, mechanism, sasl, context)
    else:
        assert isinstance(sasl, PlainServer)
        password = sasl.password

        def is_current() -> bool:
            return security.plain_users.get(user) == password

    if not is_current():
        raise SaslError("the password was changed meanwhile")
    return Login(principal, mechanism, is_current, session_ms)


def _scram_check(
    user: str, mechanism: str, sasl: ScramServer, context: SaslContext
) -> Callable[[], bool]:
    assert sasl.credential is not None
    image, proven, key = context.image_source(), sasl.credential.stored_key, (user, mechanism)

    def is_current() -> bool:
        found = image().scram_credentials.get(key)
        return found is not None and found.stored_key == proven

    return is_current


async def _refuse(answer: T, context: SaslContext, reason: str, delay_seconds: float = 0.0) -> T:
    """Answer, perhaps late, and close the connection behind it."""
    await asyncio.sleep(delay_seconds)
    context.connection.finish(reason)
    return answer
