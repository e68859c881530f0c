"""How this broker proves to others of its cluster that it is one, and knows them in turn.

Both sides know the cluster's key, because both may read the store. A broker that is connected to
proves it as well, so nobody can pose as a leader either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tidelog.client.faults import raise_for
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.random import Random
from tidelog.protocol.apis import api
from tidelog.security.broker_identity import BrokerIdentity
from tidelog.store.port import StoreError

_log = logging.getLogger(__name__)

_RETRY_S: Final = 0.5

Send = Callable[[str, object], Awaitable[Any]]


class BrokerLogin:
    """What a broker knows of the cluster's key; `read` asks the store for it."""

    def __init__(
        self, read: Callable[[], Awaitable[BrokerIdentity | None]], random: Random
    ) -> None:
        self._read = read
        self._random = random
        # None until the store has told; brokers cannot be told from others so long.
        self.identity: BrokerIdentity | None = None

    async def learn(self) -> None:
        """Read the key, at the start and whenever there is a new session with the store."""
        found = await self._read()
        if found is not None:
            self.identity = found

    async def learn_soon(self) -> None:
        """The same as soon as the store can be asked; what it tells may still be nothing."""
        while self.identity is None:
            try:
                await self.learn()
            except StoreError as error:
                _log.warning("the key of the cluster was not read: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                break

    async def authenticate(self, send: Send) -> None:
        """Log in on a new connection; KafkaError or ScramError where one side does not know."""
        if self.identity is None:
            await self.learn()
        identity = self.identity
        if identity is None:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, "the store has no key of the cluster yet"
            )
        client = identity.client(self._random.uuid().hex)
        asked = api("SaslHandshake").request(identity.mechanism.name)
        handshake = await send("SaslHandshake", asked)
        raise_for(handshake.error_code)
        challenge = await self._exchange(send, client.first())
        client.finish(await self._exchange(send, client.final(challenge)))

    async def _exchange(self, send: Send, message: bytes) -> bytes:
        answer = await send("SaslAuthenticate", api("SaslAuthenticate").request(message))
        if answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            # The key may have been replaced, with a store that was restored.
            await self.learn()
        raise_for(answer.error_code, answer.error_message)
        token: bytes = answer.auth_bytes
        return token
