"""DescribeUserScramCredentials (50, versions 0 to 0), AlterUserScramCredentials (51, 0 to 0).

Behaviour: as in Kafka. A client salts the password and sends the result; the broker derives the
stored keys from it, and nothing shows them again. Each user succeeds or fails separately. 4,096 to
16,384 iterations, as in Kafka.

Gaps: a salt of less than 8 bytes and a salted password of the wrong length are refused, which
Kafka stores. The name `__broker` is the brokers' own. One request may set both mechanisms of a
user, which Kafka refuses.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain

from tidelog.cluster.commands import AlterScramCredentials
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.security.credentials import (
    MECHANISM_TYPES,
    TYPE_OF_MECHANISM,
    ScramCredential,
    check_iterations,
    check_user,
    scram_credential,
)
from tidelog.security.scram import SALT_BYTES_MIN, Mechanism
from tidelog.server.tools import ClusterContext

_Outcome = dict[str, ScramCredential | None] | KafkaError
_USERS_PER_REQUEST_MAX = 10_000


def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: ClusterContext
) -> Generator[int, None, DescribeUserScramCredentialsResponse]:
    try:
        context.require(Operation.DESCRIBE, CLUSTER)
    except KafkaError as error:
        denied = []
        for _ in request.users or ():
            yield 1
            # As in Kafka the answers are as many as the users, and name none.
            denied.append(DescribeUserScramCredentialsResult("", error.code, error.message))
        return DescribeUserScramCredentialsResponse(0, error.code, error.message, denied)
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), credential in context.image.scram_credentials.items():
        yield 1
        info = CredentialInfo(TYPE_OF_MECHANISM[mechanism], credential.iterations)
        known.setdefault(user, []).append(info)
    times: dict[str, int] = {}
    for each in request.users or ():
        yield 1
        times[each.name] = times.get(each.name, 0) + 1
    results = []
    for user in times or dict.fromkeys(sorted(known), 1):
        yield 1
        results.append(_described(user, known.get(user), times.get(user, 1)))
    return DescribeUserScramCredentialsResponse(results=results)


def _described(
    user: str, infos: list[CredentialInfo] | None, times: int
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user,
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: "
            f"{user}",
        )
    if infos is None:
        return DescribeUserScramCredentialsResult(
            user,
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {user}",
        )
    infos = sorted(infos, key=lambda each: each.mechanism)
    return DescribeUserScramCredentialsResult(user, credential_infos=infos)


async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: ClusterContext
) -> AlterUserScramCredentialsResponse:
    refusal = None
    try:
        context.require(Operation.ALTER, CLUSTER)
        if len(request.deletions) + len(request.upsertions) > _USERS_PER_REQUEST_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"One request alters at most {_USERS_PER_REQUEST_MAX} credentials.",
            )
    except KafkaError as error:
        refusal = error
    outcomes: dict[str, _Outcome] = {}
    pace = context.pace()
    altered: Iterator[ScramCredentialDeletion | ScramCredentialUpsertion] = chain(
        request.deletions, request.upsertions
    )
    for each in altered:
        await pace.step()
        outcomes[each.name] = refusal or _with(outcomes.get(each.name, {}), each)
    commands = [
        AlterScramCredentials(user, outcome)
        for user, outcome in outcomes.items()
        if not isinstance(outcome, KafkaError)
    ]
    submitter = context.tools.submitter
    answers = iter(await submitter.submit_many(commands, context.principal))
    results = []
    for user, outcome in outcomes.items():
        await pace.step()
        answer = outcome if isinstance(outcome, KafkaError) else next(answers)
        result = AlterUserScramCredentialsResult(user, 0, None)
        if isinstance(answer, KafkaError):
            result.error_code, result.error_message = answer.code, answer.message
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


def _with(before: _Outcome, asked: ScramCredentialDeletion | ScramCredentialUpsertion) -> _Outcome:
    """What is to become of a user with one alteration more; the first fault counts."""
    if isinstance(before, KafkaError):
        return before
    try:
        check_user(asked.name)
        mechanism = MECHANISM_TYPES.get(asked.mechanism)
        if mechanism is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        credential = (
            _credential(mechanism, asked) if isinstance(asked, ScramCredentialUpsertion) else None
        )
        if mechanism.name in before:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
    except KafkaError as error:
        return error
    return {**before, mechanism.name: credential}


def _credential(mechanism: Mechanism, asked: ScramCredentialUpsertion) -> ScramCredential:
    check_iterations(asked.iterations)
    if len(asked.salt) < SALT_BYTES_MIN:
        raise _unacceptable(f"The salt has {len(asked.salt)} bytes, fewer than {SALT_BYTES_MIN}")
    if len(asked.salted_password) != len(mechanism.digest(b"")):
        raise _unacceptable(f"The salted password is none of {mechanism.name}")
    return scram_credential(mechanism, asked.salted_password, asked.salt, asked.iterations)


def _unacceptable(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
