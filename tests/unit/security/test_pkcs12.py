"""Keystores and truststores in PKCS12, the format that Java writes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)

from tests.unit.security.handshakes import shake_hands
from tidelog.errors import ConfigError
from tidelog.security.tls import TlsSettings, client_context, server_context
from tidelog.testing.certificates import Authority

AUTHORITY = Authority()
BROKER = AUTHORITY.issue()
SECRECY = BestAvailableEncryption(b"opensesame")


@pytest.fixture
def settings(tmp_path: Path) -> TlsSettings:
    keys, trust = tmp_path / "keys.p12", tmp_path / "trust.p12"
    keys.write_bytes(
        serialize_key_and_certificates(
            b"broker", BROKER.key, BROKER.certificate, [AUTHORITY.certificate], SECRECY
        )
    )
    keys.chmod(0o600)
    trusted = PKCS12Certificate(AUTHORITY.certificate, b"authority")
    trust.write_bytes(serialize_java_truststore([trusted], SECRECY))
    return TlsSettings(
        keystore_type="PKCS12",
        keystore_location=str(keys),
        keystore_password="opensesame",
        truststore_type="PKCS12",
        truststore_location=str(trust),
        truststore_password="opensesame",
    )


def test_a_keystore_and_a_truststore_are_read(settings: TlsSettings) -> None:
    server = server_context(replace(settings, client_auth="required"))
    end, _ = shake_hands(server, client_context(settings))
    assert end.getpeercert() is not None


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_wrong_password_is_named_and_not_shown(settings: TlsSettings, password: str) -> None:
    with pytest.raises(ConfigError, match=r"keys\.p12: .*its password is wrong"):
        server_context(replace(settings, keystore_password=password))
    with pytest.raises(ConfigError, match=r"trust\.p12: .*its password is wrong"):
        client_context(replace(settings, truststore_password=password))


def test_a_store_without_a_key_is_refused(settings: TlsSettings, tmp_path: Path) -> None:
    bare = tmp_path / "bare.p12"
    trusted = PKCS12Certificate(AUTHORITY.certificate, b"authority")
    bare.write_bytes(serialize_java_truststore([trusted], SECRECY))
    bare.chmod(0o600)
    with pytest.raises(ConfigError, match="no private key with its certificate"):
        server_context(replace(settings, keystore_location=str(bare)))


def test_a_file_of_the_other_format_is_named(settings: TlsSettings, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set ssl\.keystore\.type=PKCS12"):
        server_context(replace(settings, keystore_type="PEM"))
    pem = BROKER.write(tmp_path / "broker.pem")
    with pytest.raises(ConfigError, match="this is no PKCS12 file"):
        server_context(replace(settings, keystore_location=pem))


def test_without_the_extra_the_command_that_installs_it_is_named(
    settings: TlsSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "cryptography.hazmat.primitives.serialization.pkcs12"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'tidelog\[security\]'"):
        server_context(settings)


def test_x4_a_keystore_that_others_may_read_is_refused(settings: TlsSettings) -> None:
    Path(settings.keystore_location).chmod(0o644)
    with pytest.raises(ConfigError, match="mode is 0644"):
        server_context(settings)
