"""Decisions on users' credentials, access-control lists and client quotas: pure.

Promises: what one command changes is in one transaction, so no broker ever sees half of it. Nothing
of this is written before every broker of the cluster reads it: one that does not know of rules
would let everybody do everything.
"""

from __future__ import annotations

import json
from typing import Final

from tidelog.cluster.changes import (
    AclsChanged,
    Change,
    ClientQuotasChanged,
    ScramCredentialChanged,
)
from tidelog.cluster.commands import (
    AlterClientQuotas,
    AlterScramCredentials,
    CreateAcls,
    DeleteAcls,
    DeletedAcls,
    SecurityCommand,
)
from tidelog.cluster.failover import Plan
from tidelog.cluster.image import ImageView
from tidelog.errors import ErrorCode, KafkaError
from tidelog.security.acl import AclBinding, check_binding, check_filter
from tidelog.security.credentials import (
    SALT_BYTES_MAX,
    TYPE_OF_MECHANISM,
    check_iterations,
    check_user,
)
from tidelog.security.quota_entities import check_quota, quota_entity

# The version of the store's values, and of the brokers, from which on there is any of this.
SECURITY_VERSION: Final = 3
CREDENTIALS_MAX: Final = 50_000
ACLS_MAX: Final = 50_000
QUOTA_ENTITIES_MAX: Final = 50_000
# What one request adds or removes is one transaction, and ZooKeeper takes none of more than 1 MiB:
# some 250 bytes go with each rule's node, beside its text. These two are not settings: more
# would be refused by the store, too late to say what is wrong, and less protects nobody.
ACLS_PER_REQUEST_MAX: Final = 1_000
_TEXT_PER_REQUEST_MAX: Final = 160 * 1024
# Of filters with rules, for one request: some tenths of a second.
_COMPARISONS_MAX: Final = 300_000


def plan_security(image: ImageView, command: SecurityCommand, keeps_secrets: bool) -> Plan:
    """Decide on one command; KafkaError where it cannot be done."""
    _check_versions(image)
    match command:
        case AlterScramCredentials():
            return _alter_credentials(image, command, keeps_secrets)
        case CreateAcls():
            return _create_acls(image, command)
        case DeleteAcls():
            return _delete_acls(image, command)
        case AlterClientQuotas():
            return _alter_quotas(image, command)


def _check_versions(image: ImageView) -> None:
    known = (*image.brokers.values(), *image.absent.values())
    older = sorted(each.id for each in known if each.metadata_version < SECURITY_VERSION)
    if older:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Broker {', '.join(map(str, older))} runs a version of Tidelog without users,"
            " access-control lists and quotas; upgrade all the brokers first.",
        )


def _alter_credentials(
    image: ImageView, command: AlterScramCredentials, keeps_secrets: bool
) -> Plan:
    user, known = command.user, image.scram_credentials
    check_user(user)
    changes: list[Change] = []
    for mechanism, credential in command.credentials.items():
        if mechanism not in TYPE_OF_MECHANISM:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if credential is None and (user, mechanism) not in known:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        if credential is not None:
            check_iterations(credential.iterations)
            if len(credential.salt) > SALT_BYTES_MAX:
                raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt is too long")
        changes.append(ScramCredentialChanged(user, mechanism, credential))
    added = sum(
        credential is not None and (user, mechanism) not in known
        for mechanism, credential in command.credentials.items()
    )
    if any(command.credentials.values()) and not keeps_secrets:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            "Everybody who reaches ZooKeeper can read this cluster's nodes, and credentials would"
            " be among them; set zookeeper.digest on all the brokers first.",
        )
    _check_room(len(known) + added, CREDENTIALS_MAX, added, "credentials")
    return Plan(tuple(changes))


def _create_acls(image: ImageView, command: CreateAcls) -> Plan:
    for each in command.acls:
        check_binding(each)
    # As they are written, where a letter may take twelve bytes.
    texts = sum(
        len(json.dumps((each.resource_name, each.principal, each.host))) for each in command.acls
    )
    if len(command.acls) > ACLS_PER_REQUEST_MAX or texts > _TEXT_PER_REQUEST_MAX:
        raise _too_many("adds")
    added = tuple(each for each in dict.fromkeys(command.acls) if each not in image.acls)
    _check_room(len(image.acls) + len(added), ACLS_MAX, len(added), "access-control rules")
    return Plan((AclsChanged(added, ()),) if added else ())


def _delete_acls(image: ImageView, command: DeleteAcls) -> Plan:
    for asked in command.filters:
        check_filter(asked)
    matches: list[tuple[AclBinding, ...]] = []
    removed: set[AclBinding] = set()
    exact = [asked.exact() for asked in command.filters]
    if exact.count(None) * len(image.acls) > _COMPARISONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{exact.count(None)} filters to be compared with {len(image.acls)} access-control"
            " rules are too many; do it in several requests.",
        )
    matched: tuple[AclBinding, ...]
    for asked, binding in zip(command.filters, exact, strict=True):
        if binding is not None:
            matched = (binding,) if binding in image.acls else ()
        else:
            matched = tuple(sorted(filter(asked.matches, image.acls)))
        removed.update(matched)
        if len(removed) > ACLS_PER_REQUEST_MAX:
            raise _too_many("removes")
        matches.append(matched)
    changes = (AclsChanged((), tuple(sorted(removed))),) if removed else ()
    return Plan(changes, DeletedAcls(tuple(matches)))


def _too_many(does: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"One request {does} at most {ACLS_PER_REQUEST_MAX} access-control rules, with at most"
        f" {_TEXT_PER_REQUEST_MAX // 1024} KiB of names; do it in several requests.",
    )


def _alter_quotas(image: ImageView, command: AlterClientQuotas) -> Plan:
    entity = quota_entity(command.entity)
    before = image.client_quotas.get(entity, {})
    quotas: dict[str, float] = dict(before)
    for key, value in command.quotas.items():
        if value is None:
            quotas.pop(key, None)
        else:
            check_quota(entity, key, value)
            quotas[key] = float(value)
    added = 1 if quotas and not before else 0
    _check_room(len(image.client_quotas) + added, QUOTA_ENTITIES_MAX, added, "entities with quotas")
    if command.validate_only or quotas == before:
        return Plan(())
    return Plan((ClientQuotasChanged(entity, quotas),))


def _check_room(then: int, most: int, added: int, what: str) -> None:
    if added and then > most:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The cluster would have {then} {what}, more than its limit of {most}; remove some"
            " first.",
        )
