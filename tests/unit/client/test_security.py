"""A client's security settings: read under Kafka's names, refused with words, never shown."""

from __future__ import annotations

import pytest

from tidelog.client.security import OPEN, read_security
from tidelog.client.settings import ClientSettings
from tidelog.errors import ConfigError

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_without_settings_nothing_is_secured() -> None:
    assert read_security({"bootstrap.servers": "a:1", "client.id": "x"}) == OPEN
    assert OPEN.protocol == "PLAINTEXT"
    assert ClientSettings().security is OPEN


@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [
        ("SSL", True, False),
        ("SASL_PLAINTEXT", False, True),
        ("SASL_SSL", True, True),
        ("sasl_ssl", True, True),
    ],
)
def test_the_protocol_says_what_a_connection_has(protocol: str, tls: bool, sasl: bool) -> None:
    found = read_security(
        {
            "security.protocol": protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "x",
        }
    )
    assert (found.tls is not None, found.sasl is not None) == (tls, sasl)
    assert found.protocol == protocol.upper()


@pytest.mark.parametrize(
    ("module", "mechanism"),
    [(_PLAIN, "PLAIN"), (_SCRAM, "SCRAM-SHA-256"), (_SCRAM, "SCRAM-SHA-512")],
)
def test_a_jaas_string_gives_name_and_password(module: str, mechanism: str) -> None:
    found = read_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="alice" password="p\\"q;";',
        }
    )
    assert found.sasl is not None
    assert (found.sasl.username, found.sasl.password) == ("alice", 'p"q;')


def test_the_names_of_librdkafka_are_understood() -> None:
    found = read_security(
        {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "/ca.pem",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "x",
        }
    )
    assert found.tls is not None and found.sasl is not None
    assert found.tls.get("ssl.truststore.location") == "/ca.pem"
    assert found.sasl.mechanism == "SCRAM-SHA-256"


def test_names_are_checked_unless_the_algorithm_is_empty() -> None:
    name = "ssl.endpoint.identification.algorithm"
    for given, wanted in (({}, "https"), ({name: ""}, ""), ({name: "HTTPS"}, "https")):
        found = read_security({"security.protocol": "SSL", **given})
        assert found.tls is not None
        assert found.tls.get(name) == wanted


_SASL = {"security.protocol": "SASL_SSL"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS'; give PLAINTEXT, SSL"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism is set, but security.protocol is PLAINTEXT"),
        ({"ssl.ca.location": "x"}, "ssl.truststore.location is set, but security.protocol"),
        (_SASL, "sasl.mechanism is missing; give PLAIN"),
        ({**_SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI'; give PLAIN"),
        ({**_SASL, "sasl.mechanism": "PLAIN"}, "PLAIN needs a username: set sasl.username"),
        (
            {**_SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a"},
            "PLAIN needs a password: set sasl.password",
        ),
        ({**_SASL, "sasl.mechanism": "OAUTHBEARER"}, "needs sasl.oauthbearer.token or"),
        (
            {**_SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{_SCRAM} required a=b;"},
            "names org.apache.kafka.common.security.scram.ScramLoginModule, but",
        ),
        (
            {
                **_SASL,
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required a=b;",
            },
            "JndiLoginModule is not offered",
        ),
        (
            {"security.protocol": "SSL", "ssl.engine.factory.class": "x"},
            "ssl.engine.factory.class is not supported",
        ),
        (
            {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"},
            "TLSv1.1 is not offered; there are TLSv1.2 and TLSv1.3",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.key": "x"},
            "ssl.keystore.key and ssl.keystore.certificate.chain are given together",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.type": "BKS"},
            "ssl.keystore.type is 'BKS'; give PEM or PKCS12",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_words(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_security(settings)
    assert words in str(refused.value)


def test_no_secret_is_in_a_repr_or_an_error() -> None:
    secret = "canary-7c1"
    found = read_security(
        {
            **_SASL,
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"{_PLAIN} required username=alice password={secret};",
            "ssl.keystore.key": secret,
            "ssl.keystore.certificate.chain": secret,
            "ssl.key.password": secret,
        }
    )
    assert secret not in repr(found)
    assert secret not in repr(ClientSettings(security=found))
    with pytest.raises(ConfigError) as refused:
        read_security({**_SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": f'"{secret}'})
    assert secret not in str(refused.value)
