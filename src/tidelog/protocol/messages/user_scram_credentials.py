"""DescribeUserScramCredentials and AlterUserScramCredentials: the users that log in with SCRAM.

Both have one version, which is flexible. Mechanisms: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, byte_string, int8, int16, int32, string, structure


@structure
class UserName:
    """A user that is asked for."""

    name: str = string()


@api_message
class DescribeUserScramCredentialsRequest:
    """Users; null or none stands for all of them."""

    users: list[UserName] | None = array_of(UserName, nullable="0+")


@structure
class CredentialInfo:
    """That a user has a credential, without its keys."""

    mechanism: int = int8()
    iterations: int = int32()


@structure
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array_of(CredentialInfo)


@api_message
class DescribeUserScramCredentialsResponse:
    """The users and their credentials."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array_of(DescribeUserScramCredentialsResult)


@structure
class ScramCredentialDeletion:
    """A credential to remove."""

    name: str = string()
    mechanism: int = int8()


@structure
class ScramCredentialUpsertion:
    """A credential to set; the password was salted by the client."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = byte_string()
    salted_password: bytes = byte_string()

    def __repr__(self) -> str:
        shown = f"name={self.name!r}, mechanism={self.mechanism}, password=hidden"
        return f"ScramCredentialUpsertion({shown})"


@api_message
class AlterUserScramCredentialsRequest:
    """Credentials to remove and to set."""

    deletions: list[ScramCredentialDeletion] = array_of(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array_of(ScramCredentialUpsertion)


@structure
class AlterUserScramCredentialsResult:
    """What became of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@api_message
class AlterUserScramCredentialsResponse:
    """The results by user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array_of(AlterUserScramCredentialsResult)
