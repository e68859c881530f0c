"""Why somebody may do something, or may not: the rule that decides, or the command that adds one.

The rules come from a broker and are decided upon here, by the authorizer that brokers use; its
settings are asked of a broker, too. Where a broker does not show them to the user who asks, only
the rules count.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from tidelog.cli.acl_words import (
    OPERATION_NAMES,
    RESOURCE_NAMES,
    command_of,
    resource_words,
    row_of,
    sentence_of,
)
from tidelog.client.acl_admin import list_acls
from tidelog.client.admin import describe_configs
from tidelog.client.blocking import Client
from tidelog.client.operation import refresh
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import ConfigResourceType
from tidelog.security.acl import (
    ALL,
    EVERYBODY,
    WILDCARD,
    AclBinding,
    AclFilter,
    PatternType,
    Permission,
)
from tidelog.security.acl_authorizer import AclAuthorizer
from tidelog.security.authorizer import Operation, Resource, ResourceType, listed_principals


@dataclass(slots=True, frozen=True)
class Question:
    """May this principal do this, from there?"""

    principal: str
    operation: Operation
    kind: ResourceType
    name: str
    host: str = ""

    @property
    def as_rule(self) -> AclBinding:
        """The rule that would allow it."""
        return AclBinding(
            self.kind,
            PatternType.LITERAL,
            self.name,
            self.principal,
            self.host or WILDCARD,
            self.operation,
            Permission.ALLOW,
        )


@dataclass(slots=True)
class Verdict:
    """The answer: the rule that decides, if one does, and the command that changes it."""

    question: Question
    allowed: bool
    reason: str
    rule: AclBinding | None = None
    command: str | None = None

    def as_json(self) -> dict[str, object]:
        asked = self.question
        return {
            "principal": asked.principal,
            "operation": OPERATION_NAMES[asked.operation],
            "resource": RESOURCE_NAMES[asked.kind],
            "name": asked.name,
            "host": asked.host or None,
            "allowed": self.allowed,
            "reason": self.reason,
            "rule": None if self.rule is None else row_of(self.rule),
            "command": self.command,
        }


@dataclass(slots=True, frozen=True)
class Policy:
    """What decides beside the rules, as a broker's settings have it."""

    super_users: frozenset[str] = frozenset()
    allows_without_rules: bool = False


def explain_all(client: Client, questions: list[Question]) -> list[Verdict]:
    """The answers of a cluster's rules."""
    try:
        rules = frozenset(client.run(list_acls(client.cluster, AclFilter())))
    except KafkaError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        reason = "the brokers have no authorizer, so everybody may do everything"
        return [Verdict(each, True, reason) for each in questions]
    policy = _policy(client)
    return [decide(each, rules, policy) for each in questions]


def _policy(client: Client) -> Policy:
    try:
        client.run(refresh(client.cluster, ()))
        broker = str(min(client.cluster.brokers))
        entries = client.run(describe_configs(client.cluster, ConfigResourceType.BROKER, broker))
    except (TidelogError, ValueError):
        return Policy()
    values = {entry.name: entry.value or "" for entry in entries}
    return Policy(
        listed_principals(values.get("super.users", "")),
        values.get("allow.everyone.if.no.acl.found", "") == "true",
    )


def decide(question: Question, rules: frozenset[AclBinding], policy: Policy) -> Verdict:
    """Which rule decides, or why none does."""
    if question.principal in policy.super_users:
        return Verdict(question, True, f"{question.principal} is one of super.users")
    authorizer = AclAuthorizer(
        lambda: rules, frozenset(), allow_without_acl=policy.allows_without_rules
    )
    resource = Resource(question.kind, question.name)
    asked = (question.principal, question.host, question.operation, resource)
    rule = authorizer.explain(*asked)
    if rule is not None and rule.permission == Permission.DENY:
        return Verdict(
            question, False, f"a rule denies it: {sentence_of(rule)}", rule,
            command_of(rule, "remove"),
        )  # fmt: skip
    if rule is not None:
        return Verdict(question, True, f"a rule allows it: {sentence_of(rule)}", rule)
    about = [each for each in rules if _is_about(each, resource)]
    if not about and policy.allows_without_rules:
        reason = (
            f"no rule is about {resource_words(question.as_rule)}, and"
            " allow.everyone.if.no.acl.found is true"
        )
        return Verdict(question, True, reason)
    elsewhere = sorted(
        each.host
        for each in about
        if each.permission == Permission.ALLOW
        and each.principal in (question.principal, EVERYBODY)
        and each.host != WILDCARD
        and each.operation in (question.operation, ALL)
    )
    reason = "no rule allows it"
    if elsewhere:
        reason += f", but from {', '.join(elsewhere)}"
    return Verdict(question, False, reason, None, command_of(question.as_rule))


def _is_about(rule: AclBinding, resource: Resource) -> bool:
    wanted = AclFilter(resource.type, PatternType.MATCH, resource.name)
    return wanted.matches(rule)


def print_verdict(verdict: Verdict) -> None:
    asked = verdict.question
    verb = "may" if verdict.allowed else "may not"
    what = OPERATION_NAMES[asked.operation]
    where = f" from {asked.host}" if asked.host else ""
    target = resource_words(asked.as_rule)
    click.echo(f"{asked.principal} {verb} {what} {target}{where}: {verdict.reason}")
    if verdict.command is not None:
        click.echo(
            f"  {'to allow it' if verdict.rule is None else 'to lift it'}: {verdict.command}"
        )
