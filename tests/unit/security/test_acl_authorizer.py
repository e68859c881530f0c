"""Who may do what by access-control lists, against a model that looks at every rule."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable

import pytest

from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.security import acl_authorizer
from tidelog.security.acl import ALL, AclBinding, AclFilter, PatternType, Permission
from tidelog.security.acl_authorizer import AclAuthorizer
from tidelog.security.authorizer import (
    CLUSTER,
    OpenAuthorizer,
    Operation,
    Principal,
    Resource,
    ResourceType,
    listed_principals,
)
from tidelog.server.configured import authorizer_of

SETS = 100_000 if os.environ.get("TIDELOG_LONG") else 400
NAMES = ("*", "a", "ab", "abc", "b", "ba", "hardcode", "")
PRINCIPALS = ("User:a", "User:b", "User:*", "User:A", "Group:a")
HOSTS = ("*", "10.0.0.1", "10.0.0.2", "::1")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = (*Operation, ALL)
ALICE = Principal("User:alice", is_broker=False)
ORDERS = Resource(ResourceType.TOPIC, "orders")
READ = AclBinding(2, PatternType.LITERAL, "orders", "User:alice", "*", 3, Permission.ALLOW)
HOST = "10.0.0.1"


class Held:
    """An authorizer, and the rules that it goes by."""

    def __init__(self, *acls: AclBinding, everyone: bool = False, supers: str = "") -> None:
        self.acls = frozenset(acls)
        self.authorizer = AclAuthorizer(
            lambda: self.acls, listed_principals(supers), allow_without_acl=everyone
        )

    def may(
        self,
        operation: Operation = Operation.READ,
        resource: Resource = ORDERS,
        host: str = HOST,
        who: str = "User:alice",
    ) -> bool:
        return self.authorizer.authorize(Principal(who, False), host, operation, resource)


# -- the model: every rule is looked at, one condition after the other ----------------------------


def names_it(rule: AclBinding, resource: Resource) -> bool:
    if rule.resource_type != resource.type:
        return False
    if rule.pattern_type == PatternType.PREFIXED:
        return resource.name.startswith(rule.resource_name)
    return rule.resource_name in ("*", resource.name)


def is_for(rule: AclBinding, who: str, host: str) -> bool:
    return rule.principal in (who, "User:*") and rule.host in (host, "*")


def model(
    rules: Iterable[AclBinding], who: str, host: str, operation: Operation, resource: Resource
) -> bool | None:
    """None where no rule is about the resource."""
    about = [each for each in rules if names_it(each, resource)]
    if not about:
        return None
    mine = [each for each in about if is_for(each, who, host)]
    if any(each.permission == 2 and each.operation in (operation, ALL) for each in mine):
        return False
    implied = {
        Operation.DESCRIBE: (3, 4, 6, 7),
        Operation.DESCRIBE_CONFIGS: (11,),
    }.get(operation, ())
    return any(
        each.permission == 3 and each.operation in (operation, ALL, *implied) for each in mine
    )


def model_of_any(
    rules: Iterable[AclBinding], who: str, host: str, operation: Operation, kind: ResourceType
) -> bool:
    """Whether some name is allowed by rules for this very operation, or any name by all rules."""
    if model(rules, who, host, operation, Resource(kind, "hardcode")):
        return True
    exact = [
        each
        for each in rules
        if each.resource_type == kind
        and is_for(each, who, host)
        and each.operation in (operation, ALL)
    ]
    allow = [each for each in exact if each.permission == 3]
    deny = [each for each in exact if each.permission == 2]
    # A name below an allowed prefix that no rule names literally, or an allowed name itself.
    tried = [
        each.resource_name + ("\uffff" if each.pattern_type == PatternType.PREFIXED else "")
        if each.resource_name != "*" or each.pattern_type == PatternType.PREFIXED
        else "\uffff"
        for each in allow
    ]
    return any(not any(names_it(rule, Resource(kind, name)) for rule in deny) for name in tried)


def random_rule(source: random.Random) -> AclBinding:
    pattern = source.choice((PatternType.LITERAL, PatternType.PREFIXED))
    return AclBinding(
        source.choice(KINDS),
        pattern,
        source.choice(NAMES[:-1]),
        source.choice(PRINCIPALS),
        source.choice(HOSTS),
        source.choice(OPERATIONS),
        source.choice((2, 3, 3)),
    )


def test_decisions_are_those_of_a_model_that_looks_at_every_rule() -> None:
    source = random.Random(20)
    held = Held()
    tried = allowed = any_tried = 0
    for number in range(SETS):
        held.authorizer.allow_without_acl = number % 2 == 0
        if number % 4 < 2:
            held.acls = frozenset(random_rule(source) for _ in range(source.randrange(12)))
            if number % 8 < 2:
                held.acls = frozenset(each._replace(host="*") for each in held.acls)
        else:
            # One more and one less: what a broker sees as a rule.
            held.acls = held.acls.union([random_rule(source)]).difference(
                [source.choice(sorted(held.acls))] if held.acls else ()
            )
        held.authorizer._decisions.clear()
        held.authorizer._asked.clear()
        for _ in range(6):
            who, host = source.choice(PRINCIPALS[:2]), source.choice(HOSTS[1:])
            operation = source.choice(tuple(Operation))
            resource = Resource(source.choice(KINDS), source.choice(NAMES))
            said = held.may(operation, resource, host, who)
            expected = model(held.acls, who, host, operation, resource)
            expected = held.authorizer.allow_without_acl if expected is None else expected
            assert said == expected, (sorted(held.acls), who, host, operation, resource)
            assert held.may(operation, resource, host, who) == said
            tried += 1
            allowed += said
        if not held.authorizer.allow_without_acl:
            principal = Principal(who, False)
            said = held.authorizer.authorize_any(principal, host, operation, resource.type)
            expected = model_of_any(held.acls, who, host, operation, resource.type)
            assert said == expected, (sorted(held.acls), who, host, operation, resource.type)
            any_tried += 1
    assert tried == SETS * 6
    assert any_tried == SETS // 2
    assert tried // 20 < allowed < tried // 1.2


# -- examples -------------------------------------------------------------------------------------


def test_nothing_is_allowed_by_default() -> None:
    assert not Held().may()
    assert not Held(READ).may(resource=Resource(ResourceType.TOPIC, "others"))
    assert not Held(READ).may(who="User:bob")


def test_a_deny_beats_every_allow() -> None:
    deny = READ._replace(permission=Permission.DENY)
    wide = READ._replace(resource_name="*", principal="User:*", operation=ALL)
    assert not Held(READ, wide, deny).may()
    prefixed = deny._replace(pattern_type=PatternType.PREFIXED, resource_name="o")
    assert not Held(READ, wide, prefixed).may()


def test_a_deny_of_read_does_not_deny_describe() -> None:
    deny = READ._replace(permission=Permission.DENY)
    assert Held(READ._replace(operation=ALL), deny).may(Operation.DESCRIBE)


@pytest.mark.parametrize("operation", [3, 4, 6, 7, 8, ALL])
def test_describe_is_implied(operation: int) -> None:
    assert Held(READ._replace(operation=operation)).may(Operation.DESCRIBE)


def test_describe_configs_is_implied_by_alter_configs_alone() -> None:
    assert Held(READ._replace(operation=11)).may(Operation.DESCRIBE_CONFIGS)
    assert not Held(READ._replace(operation=7)).may(Operation.DESCRIBE_CONFIGS)
    assert not Held(READ._replace(operation=11)).may(Operation.DESCRIBE)


def test_super_users_are_matched_exactly() -> None:
    held = Held(READ._replace(principal="User:*", permission=2), supers="User:admin; User:b:c")
    assert held.may(who="User:admin")
    assert held.may(who="User:b:c")
    for who in ("User:admin2", "User:Admin", "User:admi", "user:admin", "admin", "User:*", "User:"):
        assert not held.may(who=who)


def test_a_broker_may_do_everything_and_one_that_only_has_its_name_may_not() -> None:
    held = Held(READ._replace(principal="User:*", permission=2, operation=ALL))
    broker = Principal("User:__broker", is_broker=True)
    assert held.authorizer.authorize(broker, HOST, Operation.READ, ORDERS)
    assert held.authorizer.authorize(broker, HOST, Operation.CLUSTER_ACTION, CLUSTER)
    assert not held.may(who="User:__broker")
    assert not held.may(Operation.CLUSTER_ACTION, CLUSTER, who="User:__broker")


def test_everyone_is_allowed_only_where_no_rule_is_about_the_resource() -> None:
    held = Held(READ._replace(principal="User:bob"), everyone=True)
    assert held.may(resource=Resource(ResourceType.TOPIC, "others"))
    assert not held.may()


def test_a_prefix_is_no_wildcard_and_a_star_is_no_prefix() -> None:
    star = READ._replace(resource_name="*", pattern_type=PatternType.PREFIXED)
    assert not Held(star).may()
    assert Held(star).may(resource=Resource(ResourceType.TOPIC, "*x"))
    prefixed = READ._replace(resource_name="ord", pattern_type=PatternType.PREFIXED)
    assert Held(prefixed).may()
    assert not Held(prefixed).may(resource=Resource(ResourceType.TOPIC, "or"))
    assert not Held(prefixed).may(resource=Resource(ResourceType.GROUP, "orders"))


def test_a_deny_for_an_address_is_not_evaded_by_its_spelling() -> None:
    for written, comes_as in (
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::1", "2001:db8:0::1"),
    ):
        held = Held(READ, READ._replace(host=written, permission=2))
        assert not held.may(host=comes_as)
        assert held.may(host="10.0.0.9")


def test_what_was_decided_is_forgotten_when_the_rules_change() -> None:
    held = Held(READ)
    assert held.may()
    held.acls = frozenset()
    assert not held.may()
    held.acls = frozenset({READ, READ._replace(operation=4)})
    assert held.may() and held.may(Operation.WRITE)
    # Removal of one of two rules leaves the other.
    held.acls = frozenset({READ})
    assert held.may() and not held.may(Operation.WRITE)


def test_what_was_decided_for_any_topic_is_forgotten_when_the_rules_change() -> None:
    held = Held(READ)
    any_topic = (ALICE, HOST, Operation.READ, ResourceType.TOPIC)
    assert held.authorizer.authorize_any(*any_topic)
    held.acls = frozenset({READ._replace(principal="User:bob")})
    assert not held.authorizer.authorize_any(*any_topic)


def topic(number: int) -> Resource:
    return Resource(ResourceType.TOPIC, f"t{number}")


def test_names_that_clients_choose_do_not_grow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_authorizer, "DECISIONS_MAX", 50)
    monkeypatch.setattr(acl_authorizer, "OWN_DECISIONS_MAX", 20)
    held = Held(READ, READ._replace(host="10.9.9.9"))
    for number in range(1000):
        # From many addresses, one after the other and all at once.
        for host in (HOST, f"10.0.1.{number % 200}", f"10.0.2.{number // 10}"):
            assert not held.may(resource=topic(number), host=host)
        assert held.may()
        asked = held.authorizer._asked.values()
        assert sum(map(len, asked)) == len(held.authorizer._decisions) <= 50
        assert max(map(len, asked)) <= 20


def test_one_client_that_asks_for_many_names_has_only_its_own_decisions_forgotten() -> None:
    held = Held(READ)
    for number in range(100):
        held.may(resource=topic(number))
        held.may(resource=topic(number), who="User:bob")
    others = {key for key in held.authorizer._decisions if key[0].name != "User:mallory"}
    assert len(others) == 200
    for number in range(3 * acl_authorizer.DECISIONS_MAX):
        held.may(resource=topic(number), who="User:mallory")
    assert others <= held.authorizer._decisions.keys()
    assert len(held.authorizer._decisions) <= 200 + acl_authorizer.OWN_DECISIONS_MAX


def test_many_clients_with_one_question_each_do_not_cost_a_pass_over_all_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acl_authorizer, "DECISIONS_MAX", 400)
    held, passes = Held(READ), 0
    make_room = held.authorizer._make_room

    def counted() -> None:
        nonlocal passes
        passes += 1
        make_room()

    monkeypatch.setattr(held.authorizer, "_make_room", counted)
    for number in range(4_000):
        assert not held.may(who=f"User:{number}")
        assert len(held.authorizer._decisions) <= 400
    assert passes == 36


def test_a_question_that_was_asked_before_is_not_decided_again() -> None:
    held = Held(READ)
    assert held.may()
    held.authorizer._rules = None  # type: ignore[assignment]
    assert held.may()


def test_a_client_at_many_addresses_takes_one_decision_where_no_rule_names_an_address() -> None:
    held = Held(READ)
    any_topic = (Operation.READ, ResourceType.TOPIC)
    for number in range(200):
        host = f"10.0.0.{number}"
        assert held.may(host=host) and not held.may(Operation.WRITE, host=host)
        assert held.authorizer.authorize_any(ALICE, host, *any_topic)
    assert len(held.authorizer._decisions) == 4
    # A rule about an address counts at once, and no longer than it is there.
    held.acls = frozenset({READ, READ._replace(host=HOST, permission=2)})
    assert not held.may() and held.may(host="10.0.0.2")
    held.acls = frozenset({READ})
    assert held.may() and held.may(host="10.0.0.2")


def test_the_setting_says_who_decides() -> None:
    def of(**settings: str) -> object:
        config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
        return authorizer_of(config, frozenset)

    assert isinstance(of(), OpenAuthorizer)
    for name in (
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
        "acl",
    ):
        made = of(authorizer_class_name=name, super_users="User:a;User:b")
        assert isinstance(made, AclAuthorizer)
        assert made.super_users == {"User:a", "User:b"} and not made.allow_without_acl
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        of(authorizer_class_name="com.example.Mine")
    with pytest.raises(ConfigError, match="write User:NAME"):
        of(super_users="alice,bob")


def test_filters_match_as_kafka_matches() -> None:
    prefixed = READ._replace(pattern_type=PatternType.PREFIXED, resource_name="ord")
    wildcard = READ._replace(resource_name="*")
    rules = {READ, prefixed, wildcard}

    def matched(**asked: object) -> set[AclBinding]:
        return set(filter(AclFilter(**asked).matches, rules))  # type: ignore[arg-type]

    match, literal = PatternType.MATCH, PatternType.LITERAL
    assert matched() == rules
    assert matched(resource_name="orders") == {READ}
    assert matched(resource_name="orders", pattern_type=match) == rules
    assert matched(resource_name="ord", pattern_type=match) == {prefixed, wildcard}
    assert matched(resource_name="*", pattern_type=literal) == {wildcard}
    assert matched(resource_name="ord", pattern_type=literal) == set()
    assert matched(pattern_type=literal) == {READ, wildcard}
    assert matched(operation=ALL) == set()
    assert matched(principal="User:*") == set()
    assert matched(permission=2) == set()
