"""SaslHandshake (17, versions 0 to 1), SaslAuthenticate (36, versions 0 to 2).

Behaviour: a connection begins as anonymous. A handshake names a mechanism; after it nothing but
SaslAuthenticate is taken, with frames of at most 64 KiB, until the connection is authenticated. A
request out of this order is answered ILLEGAL_SASL_STATE, a mechanism that is not served
UNSUPPORTED_SASL_MECHANISM with those that are, a wrong name or password SASL_AUTHENTICATION_FAILED;
each closes the connection. The last is answered late, ten times a second for each address.

Gaps: brokers alone authenticate, as one user, by SCRAM-SHA-512. Version 0 of the handshake is
refused as an unknown mechanism, since its messages would follow without headers. A connection is
not authenticated a second time (KIP-368).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from tidelog.errors import ErrorCode
from tidelog.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tidelog.security.authorizer import Principal
from tidelog.security.broker_identity import BROKER_USER, BrokerIdentity
from tidelog.security.scram import ScramError
from tidelog.server.routes import served
from tidelog.server.tools import SaslContext

T = TypeVar("T")

_MECHANISM = BrokerIdentity.mechanism.name
_BROKER = Principal(f"User:{BROKER_USER}", is_broker=True)


@served(is_brief=True)
def sasl_handshake(
    request: SaslHandshakeRequest, context: SaslContext
) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
    connection, tools = context.connection, context.tools
    identity = tools.identity()
    mechanisms = [] if identity is None else [_MECHANISM]
    if connection.sasl is not None or connection.is_authenticated:
        refused = SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, mechanisms)
        return _refuse(refused, context, "a second SASL handshake")
    if identity is None or request.mechanism != _MECHANISM or context.version == 0:
        refused = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms)
        return _refuse(refused, context, "a SASL mechanism that is not served")
    connection.begin_authentication(identity.server(tools.random.uuid().hex))
    return SaslHandshakeResponse(mechanisms=mechanisms)


@served(is_brief=True)
def sasl_authenticate(
    request: SaslAuthenticateRequest, context: SaslContext
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    connection = context.connection
    sasl = connection.sasl
    if sasl is None:
        refused = SaslAuthenticateResponse(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate came without a SaslHandshake before it"
        )
        return _refuse(refused, context, "SaslAuthenticate without a handshake")
    try:
        token = sasl.answer(request.auth_bytes)
    except ScramError as error:
        connection.listener.authentication_failed(connection, str(error))
        # What was wrong is in the log: the answer must not help to guess names.
        refused = SaslAuthenticateResponse(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"Authentication by {_MECHANISM} failed: the user or the password is wrong",
        )
        delay = context.tools.failure_delays.next_delay(connection.host)
        return _refuse(refused, context, "authentication failed", delay)
    if sasl.is_complete:
        connection.authenticated(_BROKER)
    return SaslAuthenticateResponse(auth_bytes=token)


async def _refuse(answer: T, context: SaslContext, reason: str, delay_seconds: float = 0.0) -> T:
    """Answer, perhaps late, and close the connection behind it."""
    await asyncio.sleep(delay_seconds)
    context.connection.finish(reason)
    return answer
