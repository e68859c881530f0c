"""Quotas set, shown and removed: by `tidelog quota` and by Kafka's own tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bench.peers.kafka import run_tool
from tests.waiting import eventually
from tidelog.cli.faults import EXIT_USAGE
from tidelog.cli.main import main
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_producer import Producer
from tidelog.client.quota_admin import list_quotas
from tidelog.testing import Broker

CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One of the test's own: quotas hold for all clients."""
    with Broker() as started:
        yield started


class Shell:
    """Runs commands against a broker."""

    def __init__(self, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.servers = servers
        self._capsys = capsys

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["quota", *arguments, "-b", self.servers])
        out, err = self._capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, out, err

    def done(self, *arguments: str) -> str:
        code, out, err = self.run(*arguments)
        assert code == 0, err
        return out + err

    def document(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--format", "json")[1])


def row(value: float | None, quota: str, **entity: str) -> dict[str, object]:
    names = {"user": None, "client-id": None, "ip": None}
    given = {kind.replace("_", "-"): name for kind, name in entity.items()}
    return {**names, **given, "quota": quota, "value": value}


def test_quotas_are_set_listed_and_removed(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(broker.bootstrap_servers, capsys)
    assert "no quotas" in shell.done("list")
    said = shell.done(
        "set", "producer_byte_rate=1048576", "request_percentage=12.5", "--user", "al"
    )
    assert "user al: producer_byte_rate is 1.04858e+06" not in said
    assert "user al: producer_byte_rate is 1048576" in said
    shell.done("set", "consumer_byte_rate=10", "--user", "al", "--client-id-default")
    shell.done("set", "connection_creation_rate=5", "--ip-default")
    assert shell.document("list") == [
        row(5, "connection_creation_rate", ip="<default>"),
        row(1_048_576, "producer_byte_rate", user="al"),
        row(12.5, "request_percentage", user="al"),
        row(10, "consumer_byte_rate", user="al", client_id="<default>"),
    ]
    assert len(shell.document("list", "--user", "al", "--client-id-default")) == 1
    assert "user al: request_percentage removed" in shell.done(
        "remove", "request_percentage", "--user", "al"
    )
    shell.done("remove", "--user", "al")
    assert "user al has no quotas" in shell.done("remove", "--user", "al")
    shell.done("remove", "--user", "al", "--client-id-default")
    shell.done("remove", "--ip-default")
    assert shell.document("list") == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("set", "producer_byte_rate=1"), "whose quota"),
        (("set", "producer_rate=1", "--user", "al"), "producer_byte_rate"),
        (("set", "producer_byte_rate=much", "--user", "al"), "not a number"),
        (("set", "producer_byte_rate=1", "--user", "al", "--user-default"), "together"),
        (("remove",), "whose quota"),
    ],
)
def test_a_mistake_is_named(
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    told: str,
) -> None:
    code, out, err = Shell("127.0.0.1:1", capsys).run(*arguments)
    assert code == EXIT_USAGE and told in err and out == ""


@pytest.mark.java
def test_kafkas_tool_sets_and_describes_quotas_of_users_clients_and_addresses(
    broker: Broker,
) -> None:
    servers = broker.bootstrap_servers

    def configs(*arguments: str) -> str:
        done = run_tool(CONFIGS, "--bootstrap-server", servers, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    alice = ("--entity-type", "users", "--entity-name", "alice")
    app = ("--entity-type", "clients", "--entity-name", "app")
    configs(
        "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50", *alice, *app
    )
    configs(
        "--alter", "--add-config", "consumer_byte_rate=2048",
        "--entity-type", "clients", "--entity-default",
    )  # fmt: skip
    address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    configs("--alter", "--add-config", "connection_creation_rate=7", *address)
    with Client(servers) as client:
        assert client.run(list_quotas(client.cluster)) == {
            (("client-id", "app"), ("user", "alice")): {
                "producer_byte_rate": 1024.0,
                "request_percentage": 50.0,
            },
            (("client-id", None),): {"consumer_byte_rate": 2048.0},
            (("ip", "127.0.0.9"),): {"connection_creation_rate": 7.0},
        }
    described = configs("--describe", *alice, *app)
    assert "user-principal 'alice', client-id 'app'" in described
    assert "producer_byte_rate=1024.0" in described and "request_percentage=50.0" in described


def test_a_quota_set_over_the_wire_throttles_our_own_producer(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(broker.bootstrap_servers, capsys)
    shell.done("set", "producer_byte_rate=1000", "--user-default")
    assert broker._broker is not None
    throttling = broker._broker.parts.requests.throttling
    eventually(lambda: throttling.is_on)
    with Producer(shell.servers) as producer:
        producer.send(ProducerRecord("quotas", value=b"x" * 12_000))
        producer.flush()
    assert throttling.throttled.answers == {"producer_byte_rate": 1}
