"""Whose SCRAM credential is asked for: the brokers', a user's, or that of nobody.

A name that nobody has gets a credential that looks like another user's and fits no password: the
salt is derived from the cluster's key, so it is the same on every broker and every time, and its
length and the iterations are those of some user that exists.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Protocol

from tidelog.security.broker_identity import BROKER_USER, BrokerIdentity
from tidelog.security.scram import ITERATIONS_MIN, Credential, Mechanism


class StoredCredential(Protocol):
    """What the metadata keeps of a user's password for one mechanism."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


Stored = Mapping[tuple[str, str], StoredCredential]


def credentials_of(
    mechanism: Mechanism, identity: BrokerIdentity, stored: Stored
) -> Callable[[str], Credential]:
    """What a server's side of SCRAM finds credentials with."""

    def find(user: str) -> Credential:
        if user == BROKER_USER:
            if mechanism is identity.mechanism:
                return identity.credential
            return _nobody(mechanism, identity, stored, user)
        found = stored.get((user, mechanism.name))
        if found is None or found.iterations < ITERATIONS_MIN:
            return _nobody(mechanism, identity, stored, user)
        return Credential(found.salt, found.iterations, found.stored_key, found.server_key)

    return find


def _nobody(
    mechanism: Mechanism, identity: BrokerIdentity, stored: Stored, user: str
) -> Credential:
    seed = identity.secret_of(f"{mechanism.name} of {user}")
    alike = sorted(
        (each.iterations, len(each.salt))
        for (_, name), each in stored.items()
        if name == mechanism.name and each.iterations >= ITERATIONS_MIN
    )
    iterations, salt_bytes = ITERATIONS_MIN, 16
    if alike:
        iterations, salt_bytes = alike[int.from_bytes(seed[:8], "big") % len(alike)]
    salt = b"".join(hmac.digest(seed, bytes([at]), "sha512") for at in range(1 + salt_bytes // 64))
    # No password has these digests.
    size = len(mechanism.digest(b""))
    return Credential(salt[:salt_bytes], iterations, seed[:size], seed[-size:])
