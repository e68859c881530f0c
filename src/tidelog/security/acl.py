"""Access-control lists as Kafka has them: bindings, filters, and what may be stored.

A binding lets, or forbids, one principal to do one operation from one host on the resources that a
pattern names. The numbers are those of the wire protocol.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.security.authorizer import CLUSTER, Operation, ResourceType

UNKNOWN: Final = 0
# In a filter: whichever it is. Among operations also one that bindings have: ALL.
ANY: Final = 1
ALL: Final = 2
WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"


class PatternType(IntEnum):
    """How a binding or filter names resources; ANY and MATCH are for filters alone."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What a binding says; ANY is for filters alone."""

    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATION_CODES: Final = frozenset({ALL, *Operation})
RESOURCE_TYPE_CODES: Final = frozenset(ResourceType)
# Of a resource's name, a principal, a host: far above what any of them needs.
TEXT_BYTES_MAX: Final = 1024


class AclBinding(NamedTuple):
    """One rule."""

    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """Which rules are asked for; None is any text."""

    resource_type: int = ANY
    pattern_type: int = PatternType.ANY
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = Permission.ANY

    def matches(self, binding: AclBinding) -> bool:
        return (
            self.resource_type in (ANY, binding.resource_type)
            and self.operation in (ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self._matches_pattern(binding)
        )

    def exact(self) -> AclBinding | None:
        """The one rule that can match, where the filter leaves nothing open."""
        name, principal, host = self.resource_name, self.principal, self.host
        if name is None or principal is None or host is None:
            return None
        codes = (self.resource_type, self.operation, self.permission)
        if ANY in codes or self.pattern_type in (PatternType.ANY, PatternType.MATCH):
            return None
        return AclBinding(
            self.resource_type,
            self.pattern_type,
            name,
            principal,
            host,
            self.operation,
            self.permission,
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        name = self.resource_name
        if self.pattern_type == PatternType.MATCH:
            if name is None:
                return True
            if binding.pattern_type == PatternType.PREFIXED:
                return name.startswith(binding.resource_name)
            return binding.resource_name in (name, WILDCARD)
        if self.pattern_type not in (PatternType.ANY, binding.pattern_type):
            return False
        return name in (None, binding.resource_name)


def check_binding(binding: AclBinding) -> None:
    """KafkaError INVALID_REQUEST where a binding cannot be stored, in Kafka's words."""
    if (
        binding.resource_type == ResourceType.CLUSTER
        and binding.resource_name != CLUSTER.name
        and binding.resource_name
    ):
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER.name}")
    if not binding.resource_name:
        raise _invalid("Invalid empty resource name")
    if binding.resource_type not in RESOURCE_TYPE_CODES:
        raise _invalid(f"Invalid resourceType {_any_or_unknown(binding.resource_type)}")
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        match = binding.pattern_type == PatternType.MATCH
        shown = "MATCH" if match else _any_or_unknown(binding.pattern_type)
        raise _invalid(f"Invalid patternType {shown}")
    if binding.operation not in OPERATION_CODES:
        raise _invalid(f"Invalid operation {_any_or_unknown(binding.operation)}")
    if binding.permission not in (Permission.DENY, Permission.ALLOW):
        raise _invalid(f"Invalid permissionType {_any_or_unknown(binding.permission)}")
    check_texts(binding)
    kind, separator, _ = binding.principal.partition(":")
    if not kind or not separator:
        raise _invalid(
            f"Could not parse principal from `{binding.principal}` (no colon is present separating"
            " the principal type from the principal name)"
        )


def check_filter(asked: AclFilter) -> None:
    """KafkaError INVALID_REQUEST where a filter asks for what cannot be stored."""
    for what, code in (
        ("patternFilter", asked.pattern_type),
        ("patternFilter", asked.resource_type),
        ("entryFilter", asked.operation),
        ("entryFilter", asked.permission),
    ):
        if code == UNKNOWN:
            raise _invalid(f"Unknown {what}.")
    check_texts(asked)


def check_texts(checked: AclBinding | AclFilter) -> None:
    """KafkaError where a name is longer than any resource, principal or host is."""
    for text in (checked.resource_name, checked.principal, checked.host):
        if text is not None and len(text.encode()) > TEXT_BYTES_MAX:
            raise _invalid(
                f"A resource name, principal or host has at most {TEXT_BYTES_MAX} bytes."
            )


def _any_or_unknown(code: int) -> str:
    return "ANY" if code == ANY else "UNKNOWN"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
