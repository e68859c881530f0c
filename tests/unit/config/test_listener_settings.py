"""Settings that one listener has for itself: which count, who may alter them, who sees them."""

from __future__ import annotations

import pytest

from tidelog.config import BrokerConfig, load
from tidelog.config.describe import describe_broker
from tidelog.config.overrides import validate_broker_overrides
from tidelog.errors import ConfigError

JAAS = "listener.name.outside.plain.sasl.jaas.config"


def test_a_listeners_own_setting_is_stronger_than_that_of_all() -> None:
    config = BrokerConfig(
        {"ssl.client.auth": "required", "listener.name.outside.ssl.client.auth": "none"},
        dynamic={"listener.name.inside.ssl.client.auth": "requested"},
    )
    found = [config.for_listener(each, "ssl.client.auth") for each in ("OUTSIDE", "INSIDE", "X")]
    assert found == ["none", "requested", "required"]
    assert config.is_own_of_listener("OUTSIDE", "ssl.client.auth")
    assert not config.is_own_of_listener("X", "ssl.client.auth")


def test_a_mechanisms_own_setting_is_found_with_its_name() -> None:
    config = BrokerConfig({JAAS: "canary"})
    assert config.for_listener("OUTSIDE", "sasl.jaas.config", "PLAIN") == "canary"
    assert config.for_listener("OUTSIDE", "sasl.jaas.config", "SCRAM-SHA-256") is None


def test_a_secret_of_a_listener_is_shown_to_nobody() -> None:
    key = "listener.name.outside.ssl.keystore.key"
    config = BrokerConfig({JAAS: "canary", key: "canary"})
    shown = {
        each.name: each for each in describe_broker(config, dynamic_broker={}, dynamic_default={})
    }
    for name in (JAAS, key):
        assert shown[name].is_sensitive and shown[name].value is None
    assert "canary" not in repr(shown)


def test_a_listeners_setting_is_read_from_a_file_and_checked(tmp_path: object) -> None:
    with pytest.raises(ConfigError, match="one of: required, requested, none"):
        load(overrides={"listener.name.outside.ssl.client.auth": "perhaps"})
    with pytest.raises(ConfigError, match=r"TLSv1\.1 .*one of: TLSv1\.2, TLSv1\.3"):
        load(overrides={"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"})
    loaded = load(overrides={"listener.name.outside.ssl.client.auth": "required"})
    assert loaded.of_listeners() == ["listener.name.outside.ssl.client.auth"]
    assert loaded.unused() == [] and loaded.warnings == ()


def test_x6_a_listener_without_a_host_is_not_opened_beyond_this_machine() -> None:
    (listener,) = BrokerConfig({"listeners": "PLAINTEXT://:9092"}).listeners.opened
    assert listener.host == "127.0.0.1"
    (listener,) = BrokerConfig().listeners.opened
    assert listener.host == "127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.1.2.3", "broker1.example"])
def test_x6_a_plaintext_listener_beyond_this_machine_is_refused(host: str) -> None:
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:9091,OUT://{host}:9092"}
    settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT"
    with pytest.raises(ConfigError, match=r"OUT://.*:9092 .*set allow\.plaintext\.listeners=true"):
        BrokerConfig(settings)
    for inside in ("127.0.0.1", "[::1]", "localhost"):
        assert BrokerConfig({"listeners": f"PLAINTEXT://{inside}:9092"}).warnings == ()
    assert BrokerConfig({"listeners": f"SASL_SSL://{host}:9092"}).warnings == ()


def test_x6_an_allowed_plaintext_listener_beyond_this_machine_is_warned_about() -> None:
    settings = {"listeners": "PLAINTEXT://0.0.0.0:9092", "allow.plaintext.listeners": "true"}
    (warning,) = BrokerConfig(settings).warnings
    assert "everybody there may do everything" in warning


def test_keys_are_altered_for_one_listener_of_one_broker_alone() -> None:
    config = BrokerConfig()
    own = {"listener.name.outside.ssl.keystore.location": "/k.pem"}
    validate_broker_overrides(config, own, per_broker=True)
    with pytest.raises(ConfigError, match="broker id must be specified"):
        validate_broker_overrides(config, own, per_broker=False)
    with pytest.raises(ConfigError, match="only per-listener"):
        validate_broker_overrides(config, {"ssl.keystore.location": "/k.pem"}, per_broker=True)


def test_brokers_use_the_listener_of_the_protocol_that_is_named() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:1,INSIDE://127.0.0.1:2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_SSL",
    }
    assert BrokerConfig(settings).listeners.inter_broker == "PLAINTEXT"
    named = settings | {"security.inter.broker.protocol": "SASL_SSL"}
    assert BrokerConfig(named).listeners.inter_broker == "INSIDE"
