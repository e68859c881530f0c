"""Kafka's own kafka-acls and kafka-configs over TLS and SCRAM: rules, users, clients, addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from bench.peers.kafka import run_tool
from tidelog.testing import Broker, Security

pytestmark = [pytest.mark.java, pytest.mark.long]
ACLS, CONFIGS = "org.apache.kafka.tools.AclCommand", "kafka.admin.ConfigCommand"
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    users = {"admin": "admin-secret", "alice": "alice-secret"}
    with Broker(settings=settings, security=Security(users=users)) as started:
        yield started


@pytest.fixture
def tool(broker: Broker, tmp_path: Path) -> Tool:
    return _tool_of(broker, tmp_path, "admin")


def _tool_of(broker: Broker, directory: Path, user: str, *, succeeds: bool = True) -> Tool:
    """Runs a tool as a user; what it says."""
    file = directory / f"{user}.properties"
    settings = broker.client_settings(user)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def run(class_name: str, *arguments: str) -> str:
        connection = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(file))
        done = run_tool(class_name, *connection, *arguments)
        said = done.stdout + done.stderr
        if succeeds:
            assert done.returncode == 0, said
        return said

    return run


def test_a_rule_of_kafka_acls_lets_a_user_produce_and_consume_until_it_is_removed(
    broker: Broker, tool: Tool
) -> None:
    alice = {
        "bootstrap.servers": broker.bootstrap_servers,
        **broker.librdkafka_settings("alice"),
        "log_level": 0,
    }
    assert _produced(alice) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    rule = ("--allow-principal", "User:alice", "--topic", "of-alice")
    tool(ACLS, "--add", *rule, "--producer")
    tool(ACLS, "--add", *rule, "--consumer", "--group", "of-alice")
    listed = tool(ACLS, "--list", "--principal", "User:alice")
    assert "operation=WRITE, permissionType=ALLOW" in listed
    assert "name=of-alice" in listed and "resourceType=GROUP" in listed
    assert _produced(alice) is None
    consumer = Consumer({**alice, "group.id": "of-alice", "auto.offset.reset": "earliest"})
    consumer.subscribe(["of-alice"])
    message = consumer.poll(20)
    assert message is not None and message.value() == b"one"
    consumer.close()
    tool(ACLS, "--remove", "--force", *rule, "--producer")
    assert _produced(alice) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _produced(settings: dict[str, str]) -> int | None:
    """The code by which a record is refused; None where it is not."""
    codes: list[int | None] = []
    producer = Producer({**settings, "message.timeout.ms": "20000"})
    producer.produce(
        "of-alice",
        b"one",
        on_delivery=lambda error, _: codes.append(None if error is None else error.code()),
    )
    assert producer.flush(30) == 0
    return codes[0]


def test_a_user_of_kafka_configs_logs_in_until_it_is_deleted(broker: Broker, tool: Tool) -> None:
    user = ("--entity-type", "users", "--entity-name", "bob")
    tool(CONFIGS, "--alter", "--add-config", "SCRAM-SHA-512=[password=bob-secret]", *user)
    assert "SCRAM-SHA-512=iterations=4096" in tool(CONFIGS, "--describe", *user)
    alice = broker.librdkafka_settings("alice")
    bob = {**alice, "sasl.username": "bob", "sasl.password": "bob-secret", "log_level": 0}
    _log_in(broker, bob)
    tool(CONFIGS, "--alter", "--delete-config", "SCRAM-SHA-512", *user)
    with pytest.raises(KafkaException):
        _log_in(broker, bob)


def _log_in(broker: Broker, settings: dict[str, str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    producer.list_topics(timeout=5)


@pytest.mark.parametrize(
    ("kind", "name", "quota"),
    [
        ("users", "alice", "producer_byte_rate=1000000.0"),
        ("clients", "reports", "consumer_byte_rate=2000000.0"),
        ("ips", "10.0.0.1", "connection_creation_rate=5.0"),
    ],
)
def test_kafka_configs_sets_shows_and_removes_quotas(
    tool: Tool, kind: str, name: str, quota: str
) -> None:
    entity = ("--entity-type", kind, "--entity-name", name)
    tool(CONFIGS, "--alter", "--add-config", quota, *entity)
    assert quota in tool(CONFIGS, "--describe", *entity)
    tool(CONFIGS, "--alter", "--delete-config", quota.partition("=")[0], *entity)
    assert quota not in tool(CONFIGS, "--describe", *entity)


def test_a_user_without_permission_is_told_so_by_both_tools(broker: Broker, tmp_path: Path) -> None:
    tool = _tool_of(broker, tmp_path, "alice", succeeds=False)
    rule = ("--allow-principal", "User:alice", "--operation", "All", "--topic", "*")
    assert "ClusterAuthorizationException" in tool(ACLS, "--add", *rule)
    quota = ("--add-config", "producer_byte_rate=1", "--entity-type", "users", "--entity-name", "a")
    assert "ClusterAuthorizationException" in tool(CONFIGS, "--alter", *quota)
