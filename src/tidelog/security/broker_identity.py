"""How the brokers of a cluster know each other: one user, with a password from the cluster's key.

The key lies in the metadata store, which only brokers may read. Everything else is derived from it,
so each broker finds the same credential, and nothing secret is ever configured or sent.
"""

from __future__ import annotations

import hmac
from functools import cached_property
from typing import Final

from tidelog.security.scram import (
    ITERATIONS_MIN,
    SCRAM_SHA_512,
    Credential,
    Mechanism,
    ScramClient,
    credential_of,
)

BROKER_USER: Final = "__broker"
KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16


class BrokerIdentity:
    """The credential that all brokers share; as a client's, and as a server's."""

    mechanism: Final[Mechanism] = SCRAM_SHA_512

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES
        self._key = key
        self._password = self._derived("password").hex().encode()
        self._salt = self._salt_of(BROKER_USER)

    @property
    def password(self) -> str:
        return self._password.decode()

    @cached_property
    def _salted_password(self) -> bytes:
        """Milliseconds of work, once the first broker logs in: one that is alone needs none."""
        return self.mechanism.salt_password(self._password, self._salt, ITERATIONS_MIN)

    @cached_property
    def credential(self) -> Credential:
        """What a server keeps of the brokers' password."""
        return credential_of(self.mechanism, self._salted_password, self._salt, ITERATIONS_MIN)

    def client(self, nonce: str) -> ScramClient:
        """The side that connects."""
        return ScramClient(self.mechanism, BROKER_USER, self._salted, nonce)

    def _salted(self, salt: bytes, iterations: int) -> bytes:
        if (salt, iterations) == (self._salt, ITERATIONS_MIN):
            return self._salted_password
        return self.mechanism.salt_password(self._password, salt, iterations)

    def secret_of(self, purpose: str) -> bytes:
        """Something that all brokers know and nobody else can find."""
        return self._derived(f"secret for {purpose}")

    def _salt_of(self, user: str) -> bytes:
        return self._derived(f"salt {user}")[:_SALT_BYTES]

    def _derived(self, purpose: str) -> bytes:
        return hmac.digest(self._key, f"tidelog broker {purpose}".encode(), "sha512")
