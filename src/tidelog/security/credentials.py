"""What the cluster keeps of its users' passwords: SCRAM credentials, by user and mechanism.

A password cannot be found from a credential, but guesses can be tried against it, and its keys are
enough to pose as the server. So they are secrets: no text, log line or answer shows them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.security.broker_identity import BROKER_USER
from tidelog.security.scram import (
    ITERATIONS_MIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Credential,
    Mechanism,
    credential_of,
)

# Kafka's bounds for a credential that a client sets; the upper one is our default, too.
CREDENTIAL_ITERATIONS_MAX: Final = 16_384
DEFAULT_ITERATIONS: Final = 16_384
SALT_BYTES: Final = 24
USER_BYTES_MAX: Final = 1024
SALT_BYTES_MAX: Final = 1024

# The numbers by which Kafka's requests name the mechanisms.
MECHANISM_TYPES: Final = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
TYPE_OF_MECHANISM: Final = {each.name: number for number, each in MECHANISM_TYPES.items()}


class ScramCredential(NamedTuple):
    """What a server keeps of one password for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, keys=hidden)"

    def for_exchange(self) -> Credential:
        """As the server's side of an exchange takes it."""
        return Credential(self.salt, self.iterations, self.stored_key, self.server_key)


def scram_credential(
    mechanism: Mechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential of a password that was salted so."""
    made = credential_of(mechanism, salted_password, salt, iterations)
    return ScramCredential(made.salt, made.stored_key, made.server_key, made.iterations)


def credential_of_password(
    mechanism: Mechanism, password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS
) -> ScramCredential:
    """The credential of a password. Slow by design: not for the event loop."""
    salted = mechanism.salt_password(password.encode(), salt, iterations)
    return scram_credential(mechanism, salted, salt, iterations)


def check_user(user: str) -> None:
    """KafkaError where no user can have this name; the words are Kafka's where it has them."""
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if user == BROKER_USER:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{BROKER_USER} is the brokers' own user; choose another name.",
        )
    if len(user.encode()) > USER_BYTES_MAX:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"A user name has at most {USER_BYTES_MAX} bytes; choose a shorter one.",
        )


def check_iterations(iterations: int) -> None:
    """KafkaError where a credential has too few or too many, with Kafka's words."""
    if iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > CREDENTIAL_ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
