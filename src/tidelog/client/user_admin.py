"""Users with SCRAM passwords, as operations: who there is, new passwords, deletions.

A password never leaves the client: it is salted here, and brokers keep what cannot be turned back.
Apache Kafka takes one credential of a user in a request, so each mechanism has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.client.connection import Call
from tidelog.client.faults import raise_for
from tidelog.client.metadata import ANY, CONTROLLER, Cluster
from tidelog.client.operation import Operation, ask, retried
from tidelog.errors import ErrorCode
from tidelog.host.random import Random
from tidelog.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, Mechanism

# As requests number them.
MECHANISMS: Final[dict[str, tuple[int, Mechanism]]] = {
    SCRAM_SHA_256.name: (1, SCRAM_SHA_256),
    SCRAM_SHA_512.name: (2, SCRAM_SHA_512),
}
_NAMES: Final = {number: name for name, (number, _) in MECHANISMS.items()}
DEFAULT_ITERATIONS: Final = 16_384


@dataclass(slots=True)
class User:
    """A user, and the iterations of each mechanism that the user has a password for."""

    name: str
    mechanisms: dict[str, int]


@dataclass(slots=True)
class NewPassword:
    """A password, and the mechanisms by which it may be proved."""

    user: str
    password: str = field(repr=False)
    mechanisms: Sequence[str]
    iterations: int = DEFAULT_ITERATIONS


@retried
def list_users(cluster: Cluster, names: Sequence[str] = ()) -> Operation[list[User]]:
    """All users, or those of the names that there are, in order."""
    from tidelog.protocol.messages.user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        UserName,
    )

    wanted = [UserName(name) for name in names] or None
    request = DescribeUserScramCredentialsRequest(wanted)
    response = yield from ask(Call(ANY, "DescribeUserScramCredentials", request))
    raise_for(response.error_code, response.error_message)
    found = []
    for each in response.results:
        if each.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        raise_for(each.error_code, each.error_message)
        mechanisms = {
            _NAMES.get(info.mechanism, str(info.mechanism)): info.iterations
            for info in each.credential_infos
        }
        found.append(User(each.user, dict(sorted(mechanisms.items()))))
    return sorted(found, key=lambda user: user.name)


def set_password(cluster: Cluster, new: NewPassword, random: Random) -> Operation[None]:
    """Set a user's password for each mechanism; a user that is not there is created."""
    for name in new.mechanisms:
        number, mechanism = MECHANISMS[name]
        salt = random.uuid().bytes + random.uuid().bytes
        salted = mechanism.salt_password(new.password.encode(), salt, new.iterations)
        yield from _upsert(cluster, new.user, number, (new.iterations, salt, salted))


@retried
def _upsert(
    cluster: Cluster, user: str, mechanism: int, salted: tuple[int, bytes, bytes]
) -> Operation[None]:
    from tidelog.protocol.messages.user_scram_credentials import ScramCredentialUpsertion

    yield from _alter(upsertions=[ScramCredentialUpsertion(user, mechanism, *salted)])


def delete_user(cluster: Cluster, user: User) -> Operation[None]:
    """Remove all credentials of a user."""
    for name in user.mechanisms:
        yield from _delete(cluster, user.name, MECHANISMS[name][0])


@retried
def _delete(cluster: Cluster, user: str, mechanism: int) -> Operation[None]:
    from tidelog.protocol.messages.user_scram_credentials import ScramCredentialDeletion

    yield from _alter(deletions=[ScramCredentialDeletion(user, mechanism)])


def _alter(**changes: object) -> Operation[None]:
    from tidelog.protocol.messages.user_scram_credentials import AlterUserScramCredentialsRequest

    request = AlterUserScramCredentialsRequest(**changes)  # type: ignore[arg-type]
    response = yield from ask(Call(CONTROLLER, "AlterUserScramCredentials", request))
    for each in response.results:
        raise_for(each.error_code, each.error_message)
