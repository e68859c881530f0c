"""Users, access-control lists and quotas as metadata: what is decided, stored and refused."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.cluster.helpers import image_with, make_rules, running, start_controller
from tests.unit.store.helpers import opened
from tidelog.cluster import layout
from tidelog.cluster.changes import AclsChanged, changes_between
from tidelog.cluster.commands import (
    AlterClientQuotas,
    AlterScramCredentials,
    Command,
    CreateAcls,
    DeleteAcls,
    DeletedAcls,
)
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.planner import plan
from tidelog.cluster.security_plans import (
    _TEXT_PER_REQUEST_MAX,
    ACLS_MAX,
    ACLS_PER_REQUEST_MAX,
)
from tidelog.cluster.steps import STEP_BYTES_MAX
from tidelog.errors import KafkaError, StorageError
from tidelog.security.acl import AclBinding, AclFilter
from tidelog.security.credentials import ScramCredential
from tidelog.store.port import Set, transaction_bytes

READ = AclBinding(2, 3, "orders", "User:alice", "*", 3, 3)
WRITE = READ._replace(operation=4)
CREDENTIAL = ScramCredential(b"salt" * 4, b"stored", b"server", 4096)
SHA_256 = "SCRAM-SHA-256"
RULES = make_rules()


def after(image: MetadataImage, *commands: Command) -> MetadataImage:
    for command in commands:
        image = image.apply_all(plan(image, command, RULES).changes, image.version + 1)
    return image


def refused(image: MetadataImage, command: Command, settings: dict[str, str] | None = None) -> str:
    with pytest.raises(KafkaError) as caught:
        plan(image, command, make_rules(settings=settings))
    return f"{caught.value.code.name}: {caught.value.message}"


def test_removal_of_one_of_two_acls_leaves_the_other() -> None:
    image = after(image_with(), CreateAcls([READ, WRITE]))
    image = after(image, DeleteAcls([AclFilter(operation=3)]))
    assert image.acls == {WRITE}


def test_an_acl_that_is_there_already_is_not_written_again() -> None:
    image = after(image_with(), CreateAcls([READ]))
    assert plan(image, CreateAcls([READ, READ]), RULES).changes == ()
    (change,) = plan(image, CreateAcls([READ, WRITE, WRITE]), RULES).changes
    assert change == AclsChanged((WRITE,), ())


def test_each_filter_is_answered_with_all_that_it_matches() -> None:
    image = after(image_with(), CreateAcls([READ, WRITE]))
    planned = plan(
        image, DeleteAcls([AclFilter(), AclFilter(operation=4), AclFilter(host="h")]), RULES
    )
    assert planned.answer == DeletedAcls(((READ, WRITE), (WRITE,), ()))
    assert planned.changes == (AclsChanged((), (READ, WRITE)),)


def test_an_image_that_nothing_of_it_changed_keeps_the_same_acls() -> None:
    image = after(image_with(), CreateAcls([READ]))
    other = after(image, AlterClientQuotas((("user", "a"),), {"producer_byte_rate": 1.0}))
    assert other.acls is image.acls


def test_nothing_is_written_before_every_broker_knows_of_it() -> None:
    image = image_with((0, 1))
    old = image.brokers[1]._replace(metadata_version=2)
    for mixed in (
        replace(image, brokers={**image.brokers, 1: old}),
        replace(image, brokers={0: image.brokers[0]}, absent={1: old}),
    ):
        for command in (
            CreateAcls([READ]),
            DeleteAcls([AclFilter()]),
            AlterScramCredentials("alice", {SHA_256: CREDENTIAL}),
            AlterClientQuotas((("user", "a"),), {"producer_byte_rate": 1.0}),
        ):
            assert refused(mixed, command).startswith("UNSUPPORTED_VERSION: Broker 1 runs")


def test_credentials_are_refused_where_anybody_can_read_zookeeper() -> None:
    command = AlterScramCredentials("alice", {SHA_256: CREDENTIAL})
    zookeeper = {"store": "zookeeper://127.0.0.1:2181/t"}
    assert "set zookeeper.digest" in refused(image_with(), command, zookeeper)
    closed = make_rules(settings={**zookeeper, "zookeeper.digest": "user:password"})
    assert plan(image_with(), command, closed).changes
    # What must go can go.
    image = after(image_with(), command)
    assert plan(
        image, AlterScramCredentials("alice", {SHA_256: None}), make_rules(settings=zookeeper)
    )


def test_the_keys_of_a_credential_are_in_no_text() -> None:
    command = AlterScramCredentials("alice", {SHA_256: CREDENTIAL})
    shown = repr(command) + str(CREDENTIAL) + repr(after(image_with(), command))
    assert "4096" in shown
    for secret in ("salt", "stored", "server"):
        assert f"b'{secret}" not in shown


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (AlterScramCredentials("", {SHA_256: CREDENTIAL}), "UNACCEPTABLE_CREDENTIAL: User"),
        (AlterScramCredentials("x" * 1025, {SHA_256: CREDENTIAL}), "UNACCEPTABLE_CREDENTIAL: A "),
        (AlterScramCredentials("a", {SHA_256: None}), "RESOURCE_NOT_FOUND: Attempt to delete"),
        (AlterScramCredentials("a", {"PLAIN": CREDENTIAL}), "UNSUPPORTED_SASL_MECHANISM: Unknown"),
        (
            AlterScramCredentials("a", {SHA_256: CREDENTIAL._replace(iterations=4095)}),
            "UNACCEPTABLE_CREDENTIAL: Too few",
        ),
        (
            AlterScramCredentials("a", {SHA_256: CREDENTIAL._replace(iterations=16385)}),
            "UNACCEPTABLE_CREDENTIAL: Too many",
        ),
        (CreateAcls([READ._replace(resource_type=1)]), "INVALID_REQUEST: Invalid resourceType ANY"),
        (CreateAcls([READ._replace(pattern_type=2)]), "INVALID_REQUEST: Invalid patternType MATCH"),
        (CreateAcls([READ._replace(operation=0)]), "INVALID_REQUEST: Invalid operation UNKNOWN"),
        (CreateAcls([READ._replace(permission=1)]), "INVALID_REQUEST: Invalid permissionType ANY"),
        (CreateAcls([READ._replace(resource_name="")]), "INVALID_REQUEST: Invalid empty resource"),
        (CreateAcls([READ._replace(principal="alice")]), "INVALID_REQUEST: Could not parse"),
        (CreateAcls([READ._replace(host="h" * 1025)]), "INVALID_REQUEST: A resource name"),
        (CreateAcls([READ._replace(resource_type=4)]), "INVALID_REQUEST: The only valid name"),
        (DeleteAcls([AclFilter(operation=0)]), "INVALID_REQUEST: Unknown entryFilter"),
        (AlterClientQuotas((), {}), "INVALID_REQUEST: Invalid empty client quota entity"),
        (AlterClientQuotas((("ip", "a"), ("user", "b")), {}), "INVALID_REQUEST: Invalid quota"),
        (AlterClientQuotas((("ip", "localhost"),), {}), "INVALID_REQUEST: localhost is"),
        (AlterClientQuotas((("user", "b"),), {"x": 1.0}), "INVALID_REQUEST: Invalid configuration"),
        (
            AlterClientQuotas((("user", "b"),), {"producer_byte_rate": 1.5}),
            "INVALID_REQUEST: producer_byte_rate cannot be a fractional",
        ),
        (
            AlterClientQuotas((("user", "b"),), {"producer_byte_rate": float("nan")}),
            "INVALID_REQUEST: Quota producer_byte_rate must be greater than 0",
        ),
        (
            AlterClientQuotas((("user", "b"),), {"producer_byte_rate": float("inf")}),
            "INVALID_REQUEST: Proposed value",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_reason(command: Command, words: str) -> None:
    assert refused(image_with(), command).startswith(words)


def test_more_acls_than_one_transaction_holds_are_refused() -> None:
    many = [READ._replace(resource_name=f"t{n}") for n in range(ACLS_PER_REQUEST_MAX + 1)]
    assert "in several requests" in refused(image_with(), CreateAcls(many))
    image = after(image_with(), CreateAcls(many[:-1]), CreateAcls(many[-1:]))
    assert "in several requests" in refused(image, DeleteAcls([AclFilter()]))
    wide = [each._replace(host="h" * 1024) for each in many[:200]]
    assert "KiB of names" in refused(image_with(), CreateAcls(wide))


def test_the_most_that_one_request_may_change_fits_one_transaction() -> None:
    # A snowman takes six bytes in JSON; names, quotes and commas take thirty more.
    snowmen = "☃" * ((_TEXT_PER_REQUEST_MAX // ACLS_PER_REQUEST_MAX - 30) // 6)
    acls = [
        AclBinding(2, 3, f"t{n:04}", f"User:{snowmen}", "*", 3, 3)
        for n in range(ACLS_PER_REQUEST_MAX)
    ]
    (change,) = plan(image_with(), CreateAcls(acls), RULES).changes
    operations = list(layout.operations_of(change, image_with(), 1))
    assert len(operations) == ACLS_PER_REQUEST_MAX
    assert transaction_bytes(operations) <= STEP_BYTES_MAX


def test_a_full_cluster_takes_no_more_acls() -> None:
    acls = frozenset(READ._replace(resource_name=f"t{n}") for n in range(ACLS_MAX))
    image = replace(image_with(), acls=acls)
    assert refused(image, CreateAcls([READ])).startswith("POLICY_VIOLATION")
    assert not plan(image, CreateAcls([READ._replace(resource_name="t0")]), RULES).changes


def test_changes_between_two_images_lead_from_one_to_the_other() -> None:
    source = random.Random(7)
    images = [random_image(source) for _ in range(40)]
    tried = 0
    for old in images:
        for new in images:
            assert old.apply_all(changes_between(old, new), new.version).same_content(new)
            tried += 1
    assert tried == 1600


def random_image(source: random.Random) -> MetadataImage:
    commands: list[Command] = []
    for _ in range(source.randrange(4)):
        commands += (
            CreateAcls([READ._replace(operation=source.randrange(2, 6))]),
            AlterScramCredentials(
                source.choice("ab"), {SHA_256: CREDENTIAL._replace(salt=source.randbytes(8))}
            ),
            AlterClientQuotas(
                (("user", source.choice(("a", "b", None))),),
                {"producer_byte_rate": float(source.randrange(1, 3))},
            ),
        )
    return after(image_with(), *commands)


@pytest.mark.parametrize(
    ("folder", "was", "damaged"),
    [
        ("/security/acls", b"User:mallory", b"User:mallorx"),
        # The last number says that the rule denies.
        ("/security/acls", b",2]", b",3]"),
        ("/security/acls", b",2]", b',"2"]'),
        ("/security/credentials", b"alice", b"alicf"),
        ("/quotas", b"alice", b"alicf"),
    ],
)
def test_x20_a_rule_a_user_or_a_quota_that_is_damaged_in_the_store_refuses_the_start(
    tmp_path: Path, folder: str, was: bytes, damaged: bytes
) -> None:
    denied = READ._replace(principal="User:mallory", permission=2)
    commands = (
        CreateAcls([denied]),
        AlterScramCredentials("alice", {"SCRAM-SHA-256": CREDENTIAL}),
        AlterClientQuotas((("user", "alice"),), {"producer_byte_rate": 1.0}),
    )

    async def run() -> None:
        async with running(tmp_path) as cluster:
            for command in commands:
                await cluster.submit(command)
        async with opened(tmp_path) as store:
            tree = await store.tree("/")
            (path,) = (each for each in tree if each.startswith(f"{folder}/"))
            assert was in tree[path].value
            await store.multi([Set(path, tree[path].value.replace(was, damaged))])
            with pytest.raises(StorageError, match=f"{folder}/.* is not understood"):
                await start_controller(store)
            await store.multi([Set(path, tree[path].value)])
            await (await start_controller(store)).close()

    asyncio.run(run())
