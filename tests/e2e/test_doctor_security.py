"""The doctor names what is wrong with a secured listener: certificate, mechanism or password."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.helpers import metadata_response
from tests.unit.client.tls_peer import TlsPeer
from tidelog.cli.doctor_security import check_certificate
from tidelog.cli.main import main
from tidelog.client.security import read_security
from tidelog.security.tls import TlsSettings, server_context
from tidelog.testing import Broker, Security
from tidelog.testing.certificates import Authority


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(security=Security("SASL_SSL", "SCRAM-SHA-512")) as started:
        yield started


def examined(
    broker: Broker,
    settings: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> dict[str, dict[str, Any]]:
    file = tmp_path / "client.properties"
    file.touch(0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with pytest.raises(SystemExit):
        main(["doctor", "-b", broker.bootstrap_servers, "--config", str(file), "--format", "json"])
    return {each["name"]: each for each in json.loads(capsys.readouterr().out)}


def test_a_secured_broker_that_is_well(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = examined(broker, broker.client_settings("alice"), tmp_path, capsys)
    assert found["certificate"]["ok"]
    assert (
        "a certificate for 127.0.0.1, localhost that is trusted here"
        in (found["certificate"]["sentence"])
    )
    assert found["login"]["sentence"] == "alice logs in by SCRAM-SHA-512."
    assert found["advertised address"]["ok"]


@pytest.mark.parametrize(
    ("changes", "name", "words", "hint"),
    [
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "mechanism", "SCRAM-SHA-512", "set sasl.mechanism"),
        (
            {
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule"
                ' required username="alice" password="wrong";'
            },
            "password",
            "SCRAM-SHA-512 authentication failed",
            "check the user and the password",
        ),
        (
            {"ssl.truststore.location": ""},
            "certificate",
            "from an unknown authority",
            "set ssl.truststore.location",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT"},
            "protocol",
            "speaks TLS, but the client speaks plaintext",
            "SASL_SSL",
        ),
        (
            {"security.protocol": "SSL"},
            "mechanism",
            "requires SASL; it offers SCRAM-SHA-512",
            "security.protocol=SASL_SSL",
        ),
    ],
)
def test_what_is_wrong_is_named(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    changes: dict[str, str], name: str, words: str, hint: str,
) -> None:  # fmt: skip
    settings = broker.client_settings("alice") | changes
    found = examined(broker, settings, tmp_path, capsys)[name]
    assert not found["ok"]
    assert words in found["sentence"]
    assert hint in found["hint"]
    assert "secret" not in json.dumps(found)


class _Clock:
    """Some other day."""

    def wall_ms(self) -> int:
        return 1_000_000_000_000

    def monotonic(self) -> float:
        return 0.0

    def cpu(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("options", "words", "hint"),
    [
        ({"expired": True}, "has expired. This machine's clock shows 2001-09-09", "renew"),
        ({"hosts": ("elsewhere.example",)}, "not for the name 127.0.0.1", "a name that is in"),
        ({"hosts": ("127.0.0.1",)}, "is valid until", ""),
    ],
)  # fmt: skip
def test_a_certificate_is_looked_at(
    tmp_path: Path, options: dict[str, Any], words: str, hint: str
) -> None:
    authority = Authority()
    key = authority.issue(**options).write(tmp_path / "broker.pem")
    context = server_context(TlsSettings(keystore_location=key))
    trust = authority.write(tmp_path / "ca.pem")
    tls = read_security({"security.protocol": "SSL", "ssl.truststore.location": trust}).tls
    assert tls is not None
    with TlsPeer(context, lambda header, message: metadata_response()) as peer:
        found = check_certificate(("127.0.0.1", peer.port), 5.0, tls, _Clock())
    assert found.ok is (not hint)
    assert words in found.sentence
    assert hint in found.hint


def test_a_certificate_of_the_client_that_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(security="SSL") as mutual:
        settings = mutual.client_settings("alice")
        del settings["ssl.keystore.location"]
        found = examined(mutual, settings, tmp_path, capsys)
    assert "the broker requires a certificate of the client" in found["certificate"]["sentence"]
    assert found["certificate"]["hint"].startswith("set ssl.keystore.location")
