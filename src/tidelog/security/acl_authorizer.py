"""Decides by access-control lists, as Apache Kafka's StandardAuthorizer does.

In this order: a super user and a broker of the cluster may do everything; a rule that denies wins;
a rule that allows; where no rule is about the resource, `allow.everyone.if.no.acl.found`; else no.
READ, WRITE, DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS, in rules that
allow and in no others.

Promises: a question that was asked before costs one look-up. Where no rule names an address, it
counts as the same question from wherever it comes. What is remembered has a bound, in all and for
each principal (at an address, where addresses count): one that asks for many names has its own
forgotten, and not those of others. All is forgotten when the rules change. A change of the rules
costs what it changes, and a pass over the set, not a pass over all that is known of it.

An address is compared by what it means, not by how it is written: `::1` is `0:0:0:0:0:0:0:1`, and a
client that comes as `::ffff:10.0.0.1` is 10.0.0.1. A rule that denies is not evaded by spelling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeVar

from tidelog.security.acl import ALL, EVERYBODY, WILDCARD, AclBinding, PatternType, Permission
from tidelog.security.authorizer import (
    Operation,
    Principal,
    Resource,
    ResourceType,
)

DECISIONS_MAX: Final = 40_000
# Of one principal at one address.
OWN_DECISIONS_MAX: Final = 5_000

# What a rule must name to allow an operation, beside the operation itself and ALL.
_IMPLIED_BY: Final[dict[Operation, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
# A name that no rule is about, with which Kafka asks what holds for all names.
_ANY_NAME: Final = "hardcode"

K = TypeVar("K")
Acls = frozenset[AclBinding]
# With a kind alone: whether any resource of it is allowed.
_Key = tuple[Principal, str, Operation, Resource | ResourceType]
# Who has asked, and from where.
_Client = tuple[Principal, str]


class AclAuthorizer:
    """The rules of one image at a time; `acls` gives those of the image that counts now."""

    def __init__(
        self, acls: Callable[[], Acls], super_users: frozenset[str], *, allow_without_acl: bool
    ) -> None:
        self._acls = acls
        self.super_users = super_users
        self.allow_without_acl = allow_without_acl
        self._seen: Acls = frozenset()
        self._rules = _Rules()
        # Whether any rule is for one address alone.
        self._is_by_host = False
        self._decisions: dict[_Key, bool] = {}
        # What each has asked of that.
        self._asked: dict[_Client, list[_Key]] = {}

    def authorize(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        if self._acls() is not self._seen:
            self._follow()
        if not self._is_by_host:
            host = WILDCARD
        key = (principal, host, operation, resource)
        decision = self._decisions.get(key)
        if decision is None:
            if principal.is_broker:
                return True
            decision = self._decide(principal.name, host, operation, resource)
            self._remember(key, decision)
        return decision

    def authorize_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        if self.authorize(principal, host, operation, Resource(kind, _ANY_NAME)):
            return True
        if not self._is_by_host:
            host = WILDCARD
        key = (principal, host, operation, kind)
        decision = self._decisions.get(key)
        if decision is None:
            rules = self._rules.of_principal(kind, principal.name, host)
            decision = _allows_any(each for each in rules if each.operation in (operation, ALL))
            self._remember(key, decision)
        return decision

    def rules(self) -> object:
        return self._acls()

    def explain(
        self, principal: str, host: str, operation: Operation, resource: Resource
    ) -> AclBinding | None:
        """The rule that decides, or None where none does."""
        self._follow()
        return self._deciding(principal, host, operation, resource)[0]

    def _follow(self) -> None:
        """Take over what has changed in the rules."""
        acls = self._acls()
        self._rules.change(acls - self._seen, self._seen - acls)
        self._seen = acls
        self._is_by_host = self._rules.with_host > 0
        self._decisions.clear()
        self._asked.clear()

    def _remember(self, key: _Key, decision: bool) -> None:
        """Clients choose names: they must not make this grow, nor have others' forgotten."""
        client = key[:2]
        count, total = len(self._asked.get(client, ())), len(self._decisions)
        if count >= OWN_DECISIONS_MAX:
            self._forget(client)
        elif total >= DECISIONS_MAX:
            # Who has more than a share, or else those who have most.
            if count * len(self._asked) >= total:
                self._forget(client)
            else:
                self._make_room()
        self._decisions[key] = decision
        self._asked.setdefault(client, []).append(key)

    def _make_room(self) -> None:
        """Forget what the largest clients have asked, until there is room for many questions.

        For one alone it would be a pass over all clients at each question.
        """
        for client in sorted(self._asked, key=lambda each: len(self._asked[each]), reverse=True):
            if len(self._decisions) <= DECISIONS_MAX * 3 // 4:
                return
            self._forget(client)

    def _forget(self, client: _Client) -> None:
        for key in self._asked.pop(client):
            del self._decisions[key]

    def _decide(self, name: str, host: str, operation: Operation, resource: Resource) -> bool:
        if name in self.super_users:
            return True
        rule, found = self._deciding(name, host, operation, resource)
        if rule is not None:
            return rule.permission == Permission.ALLOW
        return not found and self.allow_without_acl

    def _deciding(
        self, name: str, host: str, operation: Operation, resource: Resource
    ) -> tuple[AclBinding | None, bool]:
        """The rule that decides, and whether any rule is about the resource."""
        address = canonical_host(host)
        allowing = {operation, ALL} | _IMPLIED_BY.get(operation, frozenset())
        allow: AclBinding | None = None
        found = False
        for rule in self._rules.of_resource(resource):
            found = True
            if rule.principal not in (name, EVERYBODY) or not _is_from(rule, address):
                continue
            if rule.permission == Permission.DENY:
                if rule.operation in (operation, ALL):
                    return rule, True
            elif allow is None and rule.operation in allowing:
                allow = rule
        return allow, found


class _Rules:
    """The rules by what they are about, and by whom they are for."""

    def __init__(self) -> None:
        self._by_pattern: dict[tuple[int, int, str], set[AclBinding]] = {}
        self._by_principal: dict[tuple[int, str], set[AclBinding]] = {}
        # How many rules are for one address alone.
        self.with_host = 0
        # How many rules have a prefix of a length, by resource type.
        self._prefix_lengths: dict[int, Counter[int]] = {}

    def change(self, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> None:
        for rule in removed:
            _discard(self._by_pattern, rule[:3], rule)
            _discard(self._by_principal, (rule.resource_type, rule.principal), rule)
            self._count_prefix(rule, -1)
            self.with_host -= rule.host != WILDCARD
        for rule in added:
            self._by_pattern.setdefault(rule[:3], set()).add(rule)
            key = (rule.resource_type, rule.principal)
            self._by_principal.setdefault(key, set()).add(rule)
            self._count_prefix(rule, 1)
            self.with_host += rule.host != WILDCARD

    def of_resource(self, resource: Resource) -> Iterator[AclBinding]:
        """The rules whose pattern names the resource."""
        kind, name = resource
        yield from self._by_pattern.get((kind, PatternType.LITERAL, name), ())
        if name != WILDCARD:
            yield from self._by_pattern.get((kind, PatternType.LITERAL, WILDCARD), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length <= len(name):
                yield from self._by_pattern.get((kind, PatternType.PREFIXED, name[:length]), ())

    def of_principal(self, kind: ResourceType, name: str, host: str) -> Iterator[AclBinding]:
        """The rules about a kind of resource that are for a principal at a host."""
        address = canonical_host(host)
        for each in {name, EVERYBODY}:
            for rule in self._by_principal.get((kind, each), ()):
                if _is_from(rule, address):
                    yield rule

    def _count_prefix(self, rule: AclBinding, count: int) -> None:
        if rule.pattern_type != PatternType.PREFIXED:
            return
        lengths = self._prefix_lengths.setdefault(rule.resource_type, Counter())
        length = len(rule.resource_name)
        lengths[length] += count
        if not lengths[length]:
            del lengths[length]


def _allows_any(rules: Iterable[AclBinding]) -> bool:
    """Whether rules, which are for one principal and operation, leave it any resource at all."""
    denied: set[tuple[int, str]] = set()
    allowed: set[tuple[int, str]] = set()
    for rule in rules:
        names = denied if rule.permission == Permission.DENY else allowed
        names.add((rule.pattern_type, rule.resource_name))
    everything = (PatternType.LITERAL, WILDCARD)
    if everything in denied:
        return False
    return everything in allowed or any(not _is_denied(each, denied) for each in allowed)


def _is_denied(allowed: tuple[int, str], denied: set[tuple[int, str]]) -> bool:
    """Whether rules deny all that a pattern allows."""
    pattern, name = allowed
    if pattern == PatternType.LITERAL and allowed in denied:
        return True
    return any(
        (PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1)
    )


def _is_from(rule: AclBinding, address: str) -> bool:
    return rule.host == WILDCARD or canonical_host(rule.host) == address


@lru_cache(maxsize=4096)
def canonical_host(host: str) -> str:
    """An address in its one spelling; text that is none stays as it is."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _discard(index: dict[K, set[AclBinding]], key: K, rule: AclBinding) -> None:
    rules = index[key]
    rules.discard(rule)
    if not rules:
        del index[key]
