"""Whose SCRAM credential is asked for: the brokers', a user's, or that of nobody.

A name that nobody has gets a credential that looks like another user's and fits no password: the
salt is derived from the cluster's key, so it is the same on every broker and every time, and its
length and the iterations are those of some user that exists.

Promises: a known name and an unknown one cost the same work, so the time of an answer does not tell
which names exist; and that work does not grow with the number of users.
"""

from __future__ import annotations

import hmac
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

from tidelog.security.broker_identity import BROKER_USER, BrokerIdentity
from tidelog.security.scram import ITERATIONS_MIN, Credential, Mechanism

_SALT_BYTES: Final = 16


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


class _Shapes(NamedTuple):
    """The iterations and salt lengths of all users, and how many users have one up to each."""

    known: tuple[tuple[int, int], ...]
    counts: tuple[int, ...]

    def pick(self, number: int) -> tuple[int, int]:
        return self.known[bisect_right(self.counts, number % self.counts[-1])]


_DEFAULT_SHAPE: Final = _Shapes(((ITERATIONS_MIN, _SALT_BYTES),), (1,))


class ScramUsers:
    """Finds credentials; one for a broker, which remembers what the users look like."""

    def __init__(self) -> None:
        # By mechanism, with the mapping that it was taken of: users change by another mapping.
        self._shapes: dict[str, tuple[Stored, _Shapes]] = {}

    def finder(
        self, mechanism: Mechanism, identity: BrokerIdentity, stored: Stored
    ) -> Callable[[str], Credential]:
        """What a server's side of SCRAM finds credentials with."""
        shapes = self._shapes_of(mechanism, stored)

        def find(user: str) -> Credential:
            # Made for everybody, or the time that it takes would tell who exists.
            chosen: StoredCredential = _nobody(mechanism, identity, shapes, user)
            found: StoredCredential | None = stored.get((user, mechanism.name))
            if user == BROKER_USER:
                found = identity.credential if mechanism is identity.mechanism else None
            if found is not None and found.iterations >= ITERATIONS_MIN:
                chosen = found
            return Credential(chosen.salt, chosen.iterations, chosen.stored_key, chosen.server_key)

        return find

    def _shapes_of(self, mechanism: Mechanism, stored: Stored) -> _Shapes:
        if not stored:
            return _DEFAULT_SHAPE
        source, shapes = self._shapes.get(mechanism.name, (None, _DEFAULT_SHAPE))
        if source is not stored:
            shapes = _count_shapes(mechanism, stored)
            self._shapes[mechanism.name] = (stored, shapes)
        return shapes


def _count_shapes(mechanism: Mechanism, stored: Stored) -> _Shapes:
    counted = Counter(
        (each.iterations, len(each.salt))
        for (_, name), each in stored.items()
        if name == mechanism.name and each.iterations >= ITERATIONS_MIN
    )
    if not counted:
        return _DEFAULT_SHAPE
    known = tuple(sorted(counted))
    return _Shapes(known, tuple(accumulate(counted[shape] for shape in known)))


def _nobody(
    mechanism: Mechanism, identity: BrokerIdentity, shapes: _Shapes, user: str
) -> Credential:
    seed = identity.secret_of(f"{mechanism.name} of {user}")
    iterations, salt_bytes = shapes.pick(int.from_bytes(seed[:8], "big"))
    salt = b"".join(hmac.digest(seed, bytes([at]), "sha512") for at in range(1 + salt_bytes // 64))
    # No password has these digests.
    size = len(mechanism.digest(b""))
    return Credential(salt[:salt_bytes], iterations, seed[:size], seed[-size:])
