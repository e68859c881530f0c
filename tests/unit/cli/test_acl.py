"""Rules in Kafka's words, and why somebody may do something or not."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest

from tidelog.cli.acl import _rules, acl, add, explain, list_, remove
from tidelog.cli.acl_explain import Policy, Question, decide
from tidelog.cli.acl_words import command_of, filters_of, row_of, sentence_of
from tidelog.cli.faults import CliError
from tidelog.security.acl import ALL, ANY, AclBinding, AclFilter, PatternType, Permission
from tidelog.security.authorizer import Operation, ResourceType


def parsed(command: click.Command, text: str) -> dict[str, Any]:
    return dict(command.make_context(command.name, shlex.split(text)).params)


def rule(
    principal: str = "User:alice",
    operation: int = Operation.READ,
    name: str = "orders",
    **changes: Any,
) -> AclBinding:
    made = AclBinding(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        name,
        principal,
        "*",
        operation,
        Permission.ALLOW,
    )
    return made._replace(**changes)


def test_options_make_rules() -> None:
    made = _rules(parsed(add, "--allow alice --allow User:bob --operation read --topic orders"))
    assert made == [rule(), rule("User:bob")]
    [denied] = _rules(parsed(add, "--deny-principal User:* --operation ALL --topic * --host ::1"))
    assert denied == rule("User:*", ALL, "*", host="::1", permission=Permission.DENY)
    [prefixed] = _rules(
        parsed(add, "--allow alice --operation DescribeConfigs --topic a --pattern PREFIXED")
    )
    assert prefixed.pattern_type == PatternType.PREFIXED
    assert prefixed.operation == Operation.DESCRIBE_CONFIGS
    [cluster] = _rules(parsed(add, "--allow a --operation idempotent-write --cluster"))
    assert (cluster.resource_type, cluster.resource_name) == (4, "kafka-cluster")


def test_producers_and_consumers_get_what_kafka_gives_them() -> None:
    made = _rules(parsed(add, "--allow a --producer --topic t --transactional-id x"))
    assert [(each.resource_type, each.operation) for each in made] == [
        (ResourceType.TOPIC, Operation.WRITE),
        (ResourceType.TOPIC, Operation.DESCRIBE),
        (ResourceType.TOPIC, Operation.CREATE),
        (ResourceType.TRANSACTIONAL_ID, Operation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE),
    ]
    made = _rules(parsed(add, "--allow a --consumer --topic t --group g"))
    assert [(each.resource_type, each.operation) for each in made] == [
        (ResourceType.TOPIC, Operation.READ),
        (ResourceType.TOPIC, Operation.DESCRIBE),
        (ResourceType.GROUP, Operation.READ),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--operation Read --topic t", "nobody is named"),
        ("--allow a --operation Read", "no resource is named"),
        ("--allow a --topic t", "no operation is named"),
        ("--allow a --consumer --cluster", "neither a producer nor a consumer needs"),
        ("--allow User: --operation Read --topic t", "is no principal"),
    ],
)
def test_what_makes_no_rule_is_refused(text: str, words: str) -> None:
    with pytest.raises(CliError, match=words):
        _rules(parsed(add, text))


def test_an_operation_that_is_none_is_named_with_those_that_are() -> None:
    with pytest.raises(click.UsageError, match=r"'fly' is none of All, Read, Write"):
        parsed(add, "--allow a --operation fly --topic t")


def test_options_make_filters() -> None:
    def made(text: str) -> list[AclFilter]:
        options = parsed(list_, text)
        options["operations"] = options.pop("operation")
        return filters_of(options)

    assert made("") == [AclFilter()]
    assert made("--topic a --topic b --principal alice --operation Read") == [
        AclFilter(ResourceType.TOPIC, ANY, name, "User:alice", None, Operation.READ)
        for name in ("a", "b")
    ]
    [only] = made("--group g --pattern match --permission deny --host 10.0.0.1")
    assert only.pattern_type == PatternType.MATCH
    assert only.permission == Permission.DENY
    assert only.host == "10.0.0.1"


def test_removing_everything_must_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CliError, match="this would remove every rule"):
        acl.main(["remove"], standalone_mode=False)
    assert {option for each in remove.params for option in each.opts} >= {"--all"}


def test_a_rule_is_printed_in_words() -> None:
    assert sentence_of(rule()) == "User:alice may Read topic orders"
    everybody = rule("User:*", ALL, "*", permission=Permission.DENY, host="10.0.0.1")
    assert sentence_of(everybody) == "everybody may not All every topic from 10.0.0.1"
    assert row_of(rule(pattern_type=PatternType.PREFIXED)) == {
        "resource": "topic",
        "name": "orders",
        "pattern": "prefixed",
        "principal": "User:alice",
        "host": "*",
        "operation": "Read",
        "permission": "allow",
    }


ASKED = Question("User:alice", Operation.READ, ResourceType.TOPIC, "orders")
STRICT = Policy()


@pytest.mark.parametrize(
    ("rules", "allowed", "words"),
    [
        ([], False, "no rule allows it"),
        ([rule("User:bob")], False, "no rule allows it"),
        ([rule(host="10.0.0.1")], False, "no rule allows it, but from 10.0.0.1"),
        ([rule()], True, "a rule allows it: User:alice may Read topic orders"),
        ([rule("User:*", ALL, "*")], True, "a rule allows it: everybody may All every topic"),
        (
            [rule(name="ord", pattern_type=PatternType.PREFIXED)],
            True,
            "a rule allows it: User:alice may Read every topic that begins with ord",
        ),
        (
            [rule(), rule("User:*", permission=Permission.DENY)],
            False,
            "a rule denies it: everybody may not Read topic orders",
        ),
    ],
)
def test_the_rule_that_decides_is_named(rules: list[AclBinding], allowed: bool, words: str) -> None:
    verdict = decide(ASKED, frozenset(rules), STRICT)
    assert (verdict.allowed, verdict.reason) == (allowed, words)


def test_what_a_rule_implies_is_allowed_by_it() -> None:
    describe = Question("User:alice", Operation.DESCRIBE, ResourceType.TOPIC, "orders")
    verdict = decide(describe, frozenset({rule()}), STRICT)
    assert verdict.allowed
    assert verdict.rule == rule()


def test_settings_decide_where_no_rule_does() -> None:
    verdict = decide(ASKED, frozenset(), Policy(frozenset({"User:alice"})))
    assert verdict.allowed
    assert "super.users" in verdict.reason
    everybody = Policy(allows_without_rules=True)
    assert decide(ASKED, frozenset(), everybody).allowed
    assert not decide(ASKED, frozenset({rule("User:bob")}), everybody).allowed


def test_the_command_that_adds_the_missing_rule_makes_it_allowed() -> None:
    for asked in (
        ASKED,
        Question("User:o'neil", Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster"),
        Question("User:a b", Operation.READ, ResourceType.GROUP, "my group", "10.0.0.1"),
        Question("User:a", Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x"),
    ):
        verdict = decide(asked, frozenset(), STRICT)
        assert verdict.command is not None
        words = verdict.command.removeprefix("tidelog acl add ")
        made = _rules(parsed(add, words))
        assert decide(asked, frozenset(made), STRICT).allowed


def test_the_command_that_lifts_a_denial_removes_that_rule_alone() -> None:
    denial = rule("User:*", permission=Permission.DENY)
    verdict = decide(ASKED, frozenset({rule(), denial}), STRICT)
    assert verdict.command == command_of(denial, "remove")
    assert verdict.command is not None
    options = parsed(remove, verdict.command.removeprefix("tidelog acl remove "))
    options["operations"] = options.pop("operation")
    [wanted] = filters_of(options)
    assert wanted.matches(denial)
    assert not wanted.matches(rule())
    assert not wanted.matches(denial._replace(pattern_type=PatternType.PREFIXED))


def test_a_question_needs_a_resource() -> None:
    with pytest.raises(CliError, match="no resource is named"):
        explain.main(["alice", "Read"], standalone_mode=False)
