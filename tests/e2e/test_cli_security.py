"""Users and rules from the command line, on a broker that asks who is there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.cli.main import main
from tidelog.testing import Broker, Security

SECURITY = Security(
    "SASL_PLAINTEXT", "SCRAM-SHA-256", {"admin": "canary-admin", "alice": "canary-alice"}
)
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(security=SECURITY, settings=SETTINGS) as started:
        yield started


@pytest.fixture
def run(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_as(user: str, command: str, password: str | None = None) -> Done:
        settings = broker.client_settings("alice")
        known = SECURITY.users.get(user, "") if password is None else password
        settings["sasl.jaas.config"] = (
            settings["sasl.jaas.config"].replace("alice", user, 1).replace("canary-alice", known)
        )
        settings["bootstrap.servers"] = broker.bootstrap_servers
        file = tmp_path / "client.properties"
        file.touch(0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with pytest.raises(SystemExit) as ended:
            main([*shlex.split(command), "--config", str(file)])
        captured = capsys.readouterr()
        assert "canary" not in captured.out + captured.err
        return Done(int(str(ended.value.code)), captured.out, captured.err)

    return run_as


def test_a_user_comes_and_goes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOBS", "canary-bob")
    done = run("admin", "user create bob --password-env BOBS --iterations 4096")
    assert done == (0, "", "bob created (SCRAM-SHA-256, SCRAM-SHA-512)\n")
    again = run("admin", "user create bob --password-env BOBS")
    assert again.code == 1
    assert "user 'bob' exists already" in again.err
    listed = json.loads(run("admin", "user list --format json").out)
    assert {"name": "bob", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
            "iterations": [4096, 4096]} in listed  # fmt: skip
    assert run("bob", "topic list", "canary-bob").code == 0
    file = tmp_path / "password"
    file.write_text("canary-new\nmore\n")
    changed = run("admin", f"user password bob --password-file {file} --iterations 4096")
    assert "others may read the password" in changed.err
    assert run("bob", "topic list", "canary-new").code == 0
    refused = run("bob", "topic list", "canary-bob")
    assert refused.code == 1
    assert "SASL: SCRAM-SHA-256 authentication failed" in refused.err
    assert run("admin", "user delete bob") == (0, "", "bob deleted\n")
    assert run("bob", "topic list", "canary-new").code == 1
    assert run("admin", "user delete bob").code == 4
    assert run("admin", "user delete bob --if-exists").code == 0
    assert run("admin", f"user password bob --password-file {file}").code == 4


def test_a_password_is_asked_for_or_said_where_it_is(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("admin", "user create carol")
    assert done.code == 2
    assert "hint: give --password-file FILE or --password-env NAME" in done.err
    assert run("admin", "user create carol --password-env NOT_SET_HERE").code == 2
    assert run("admin", f"user create carol --password-file {tmp_path / 'none'}").code == 2
    assert run("admin", "user create carol --password x").code == 2


def test_a_rule_lets_alice_read_and_explain_says_which(run: Run) -> None:
    assert run("admin", "topic create orders -p 1").code == 0
    denied = run("alice", "topic describe orders")
    assert denied.code in (1, 4)
    missing = run("admin", "acl explain alice Read --topic orders --format json")
    assert missing.code == 1
    [verdict] = json.loads(missing.out)
    assert (verdict["allowed"], verdict["reason"]) == (False, "no rule allows it")
    command = verdict["command"]
    assert command == "tidelog acl add --allow User:alice --operation Read --topic orders"
    added = run("admin", command.removeprefix("tidelog "))
    assert added == (0, "", "added: User:alice may Read topic orders\n")
    found = run("admin", "acl explain alice Read --topic orders")
    assert found == (
        0,
        "User:alice may Read topic orders: a rule allows it: User:alice may Read topic orders\n",
        "",
    )
    assert run("alice", "topic describe orders").code == 0
    assert run("alice", "consume orders -e").code == 0
    wrote = run("alice", "produce orders -v x")
    assert wrote.code == 1
    listed = run("admin", "acl list --topic orders --pattern match --format json")
    assert json.loads(listed.out) == [
        {
            "resource": "topic",
            "name": "orders",
            "pattern": "literal",
            "principal": "User:alice",
            "host": "*",
            "operation": "Read",
            "permission": "allow",
        }
    ]
    assert run("admin", "acl add --deny User:* --operation Read --topic ord --pattern prefixed")
    lifted = json.loads(run("admin", "acl explain alice Read --topic orders --format json").out)
    assert lifted[0]["rule"]["permission"] == "deny"
    removed = run("admin", lifted[0]["command"].removeprefix("tidelog "))
    assert removed.err == "removed: everybody may not Read every topic that begins with ord\n"
    assert run("admin", "acl remove --principal alice").code == 0
    assert run("admin", "acl list").err == "no rules\n"


def test_the_permission_is_named_where_it_is_missing(run: Run) -> None:
    refused = run("alice", "user list")
    assert refused.code == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.err
    assert "the broker knows you as User:alice" in refused.err
    assert "tidelog acl explain alice" in refused.err
    explained = run("admin", "acl explain admin Alter --cluster")
    assert explained.code == 0
    assert "User:admin is one of super.users" in explained.out


def test_without_an_authorizer_everybody_may(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker, pytest.raises(SystemExit) as ended:
        main(["acl", "explain", "a", "Read", "--topic", "t", "-b", broker.bootstrap_servers])
    assert ended.value.code == 0
    assert "the brokers have no authorizer, so everybody may do everything" in (
        capsys.readouterr().out
    )
