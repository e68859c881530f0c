"""What an address of a store means, and which listeners a cluster of machines can use."""

from __future__ import annotations

import pytest

from tidelog.config import BrokerConfig
from tidelog.config.store_settings import parse_store
from tidelog.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("zookeeper://a:1,b:2/x/y", "zookeeper://a:1,b:2/x/y"),
        ("zookeeper://a", "zookeeper://a:2181/tidelog"),
        ("zookeeper://a:1/", "zookeeper://a:1/tidelog"),
        ("zookeeper://[::1]", "zookeeper://[::1]:2181/tidelog"),
        ("unix:/run/a.sock", "unix:/run/a.sock"),
    ],
)
def test_an_address_names_hosts_and_chroot_or_a_socket(text: str, shown: str) -> None:
    assert str(parse_store(text)) == shown


@pytest.mark.parametrize(
    "text", ["zk://a", "zookeeper://", "zookeeper://a,,b", "a:2181", "unix:a", "zookeeper://u:p@a"]
)
def test_anything_else_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match="zookeeper://HOST:2181"):
        BrokerConfig({"store": text})


def test_a_chroot_that_makes_transactions_too_large_is_refused() -> None:
    BrokerConfig({"store": "zookeeper://localhost/" + "c" * 99})
    with pytest.raises(ConfigError, match="has more than 100 bytes"):
        BrokerConfig({"store": "zookeeper://localhost/" + "c" * 100})


def test_a_broker_without_a_store_has_its_own() -> None:
    assert BrokerConfig().store is None


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "localhost", "[::]", "[::1]"])
def test_a_listener_that_others_cannot_reach_is_refused_where_others_are(host: str) -> None:
    settings = {"listeners": f"PLAINTEXT://{host}:9092", "allow.plaintext.listeners": "true"}
    BrokerConfig({**settings, "store": "zookeeper://127.0.0.1:2181,localhost:2182"})
    BrokerConfig({**settings, "store": "unix:/a"})
    with pytest.raises(ConfigError, match=r"set advertised\.listeners=PLAINTEXT://HOST:9092"):
        BrokerConfig({**settings, "store": "zookeeper://zk1:2181"})
    advertised = {**settings, "advertised.listeners": "PLAINTEXT://broker1:9092"}
    BrokerConfig({**advertised, "store": "zookeeper://zk1:2181"})


def test_a_loopback_address_is_not_advertised_to_other_machines() -> None:
    with pytest.raises(ConfigError, match="cannot connect to it"):
        BrokerConfig(
            {
                "listeners": "PLAINTEXT://0.0.0.0:9092",
                "allow.plaintext.listeners": "true",
                "advertised.listeners": "PLAINTEXT://localhost:9092",
                "store": "zookeeper://zk1",
            }
        )


def test_settings_of_zookeeper_are_warned_about_where_the_store_is_another() -> None:
    settings = {"zookeeper.session.timeout.ms": "6000"}
    assert "zookeeper.session.timeout.ms is known" in BrokerConfig(settings).warnings[0]
    with_it = BrokerConfig({**settings, "store": "zookeeper://localhost"})
    assert with_it.warnings == ()


def test_a_digest_has_a_user_and_a_password_and_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="USER:PASSWORD") as caught:
        BrokerConfig({"zookeeper.digest": "secret"})
    assert "secret" not in str(caught.value)
