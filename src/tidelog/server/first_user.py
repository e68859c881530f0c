"""The first user of a cluster: somebody must be able to log in before anybody can add users.

`tidelog broker --bootstrap-user admin` gives that user SCRAM credentials while the broker starts,
before clients are served. A user that has credentials keeps them: the option may stay where a
service file names it, and a changed password is not changed back. Brokers that start together make
the same credential, because the salt comes from the key of the cluster: none replaces that of
another, which would end the sessions of those who have logged in with it.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from tidelog.cluster.commands import AlterScramCredentials
from tidelog.cluster.image import MetadataImage
from tidelog.config import BrokerConfig
from tidelog.host.offload import Offload
from tidelog.security.authorizer import listed_principals
from tidelog.security.broker_identity import BrokerIdentity
from tidelog.security.credentials import (
    MECHANISM_TYPES,
    SALT_BYTES,
    ScramCredential,
    credential_of_password,
)
from tidelog.security.scram import Mechanism
from tidelog.server.submitter import Submitter

_log = logging.getLogger(__name__)


class FirstUser(NamedTuple):
    """A name and a password, which no text shows."""

    name: str
    password: str

    def __repr__(self) -> str:
        return f"FirstUser(name={self.name!r}, password=hidden)"


async def create_first_user(
    user: FirstUser,
    image: MetadataImage,
    submitter: Submitter,
    identity: BrokerIdentity,
    offload: Offload,
) -> bool:
    """Give the user a credential for each mechanism, unless it has any; whether it was done."""
    if any(name == user.name for name, _ in image.scram_credentials):
        _log.info("user %s exists; its credentials stay as they are", user.name)
        return False
    credentials: dict[str, ScramCredential | None] = {}
    for mechanism in MECHANISM_TYPES.values():
        credentials[mechanism.name] = await offload.run(_credential, mechanism, user, identity)
    await submitter.submit(AlterScramCredentials(user.name, credentials))
    _log.info("user %s created; it logs in by %s", user.name, " or ".join(credentials))
    return True


def _credential(mechanism: Mechanism, user: FirstUser, identity: BrokerIdentity) -> ScramCredential:
    salt = identity.secret_of(f"the salt of {mechanism.name} {user.name}")[:SALT_BYTES]
    return credential_of_password(mechanism, user.password, salt)


def first_user_warning(user: FirstUser, config: BrokerConfig) -> str | None:
    """What keeps the first user from being an administrator, where something does."""
    if not config.get_str("authorizer.class.name"):
        return None
    principal = f"User:{user.name}"
    if principal in listed_principals(config.get_str("super.users")):
        return None
    return (
        f"{principal} is not among super.users, so it may do only what access-control lists allow;"
        f" set super.users={principal} to make it an administrator"
    )
