"""What TLS listeners and clients take, and what they refuse, by the targets X1 to X4."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.security.handshakes import shake_hands
from tidelog.errors import ConfigError
from tidelog.security.tls import (
    TlsSettings,
    client_context,
    server_context,
    stamp_of,
    tls_settings,
)
from tidelog.testing.certificates import Authority

AUTHORITY = Authority()
BROKER = AUTHORITY.issue()


def inline(identity: object = BROKER, **changes: object) -> TlsSettings:
    settings = TlsSettings(
        keystore_key=identity.key_pem(),  # type: ignore[attr-defined]
        keystore_certificate_chain=identity.certificate_pem,  # type: ignore[attr-defined]
        truststore_certificates=AUTHORITY.pem,
    )
    return replace(settings, **changes)  # type: ignore[arg-type]


def trusting(**changes: object) -> TlsSettings:
    settings = TlsSettings(truststore_certificates=AUTHORITY.pem)
    return replace(settings, **changes)  # type: ignore[arg-type]


def old_client(version: ssl.TLSVersion, ciphers: str = "ALL:@SECLEVEL=0") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=AUTHORITY.pem)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = version
    context.set_ciphers(ciphers)
    return context


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_both_versions_of_tls_are_spoken(version: str) -> None:
    client = client_context(trusting(protocol=version, enabled_protocols=(version,)))
    _, end = shake_hands(server_context(inline()), client)
    assert end.version() == version
    assert end.compression() is None


def test_the_newest_version_is_taken_unless_settings_say_otherwise() -> None:
    _, end = shake_hands(server_context(inline()), client_context(trusting()))
    assert end.version() == "TLSv1.3"
    older = server_context(inline(protocol="TLSv1.2"))
    _, end = shake_hands(older, client_context(trusting()))
    assert end.version() == "TLSv1.2"


def test_x1_neither_renegotiation_nor_compression_is_allowed() -> None:
    for context in (server_context(inline()), client_context(trusting())):
        for option in (ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_COMPRESSION):
            assert context.options & option


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_x1_tls_1_0_and_1_1_are_refused(version: ssl.TLSVersion) -> None:
    with pytest.raises(ssl.SSLError):
        shake_hands(server_context(inline()), old_client(version))


@pytest.mark.parametrize("ciphers", ["eNULL:@SECLEVEL=0", "AES128-SHA:@SECLEVEL=0", "kRSA"])
def test_x1_suites_without_encryption_or_forward_secrecy_are_refused(ciphers: str) -> None:
    with pytest.raises(ssl.SSLError):
        shake_hands(server_context(inline()), old_client(ssl.TLSVersion.TLSv1_2, ciphers))


def test_x1_a_suite_can_be_chosen_by_javas_name_and_no_other_is_taken() -> None:
    name = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    server = server_context(inline(cipher_suites=(name,), protocol="TLSv1.2"))
    _, end = shake_hands(server, client_context(trusting()))
    assert end.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"  # type: ignore[index]
    other = old_client(ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(ssl.SSLError):
        shake_hands(server, other)
    with pytest.raises(ConfigError, match="TLS_RSA_WITH_RC4_128_SHA is not offered"):
        server_context(inline(cipher_suites=("TLS_RSA_WITH_RC4_128_SHA",)))


def test_x1_an_expired_certificate_is_refused() -> None:
    server = server_context(inline(AUTHORITY.issue(expired=True)))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(server, client_context(trusting()))


def test_x1_a_certificate_of_an_unknown_authority_is_refused() -> None:
    server = server_context(inline(Authority("CN=stranger").issue()))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client_context(trusting()))


def test_x2_a_certificate_for_another_host_is_refused_by_default() -> None:
    server = server_context(inline(AUTHORITY.issue(hosts=["elsewhere.example"])))
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        shake_hands(server, client_context(trusting()))
    shake_hands(server, client_context(trusting(endpoint_identification_algorithm="")))


def test_x3_a_client_without_a_certificate_is_refused_where_one_is_required() -> None:
    server = server_context(inline(client_auth="required"))
    with pytest.raises(ssl.SSLError):
        shake_hands(server, client_context(trusting()))


def test_a_client_without_a_certificate_is_taken_where_one_is_requested() -> None:
    server = server_context(inline(client_auth="requested"))
    end, _ = shake_hands(server, client_context(trusting()))
    assert end.getpeercert(binary_form=True) is None


@pytest.mark.parametrize("wish", ["required", "requested"])
def test_x3_a_clients_certificate_must_be_good_where_it_shows_one(wish: str) -> None:
    server = server_context(inline(client_auth=wish))
    alice = AUTHORITY.issue("CN=alice")
    end, _ = shake_hands(server, client_context(inline(alice)))
    assert end.getpeercert(binary_form=True) is not None
    for bad in (AUTHORITY.issue("CN=alice", expired=True), Authority().issue("CN=alice")):
        with pytest.raises(ssl.SSLError):
            shake_hands(server, client_context(inline(bad)))


def test_x3_a_revoked_certificate_is_refused(tmp_path: Path) -> None:
    alice, mallory = AUTHORITY.issue("CN=alice"), AUTHORITY.issue("CN=mallory")
    trust = tmp_path / "ca.pem"
    trust.write_text(AUTHORITY.pem + AUTHORITY.revoke(mallory))
    server = server_context(
        inline(client_auth="required", truststore_certificates="", truststore_location=str(trust))
    )
    shake_hands(server, client_context(inline(alice)))
    with pytest.raises(ssl.SSLError):
        shake_hands(server, client_context(inline(mallory)))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_x4_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = BROKER.write(tmp_path / "broker.pem", mode)
    with pytest.raises(ConfigError, match=f"mode is {mode:04o}.*chmod 600"):
        server_context(TlsSettings(keystore_location=path))


def test_a_key_in_a_file_is_read_and_its_change_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "broker.pem"
    settings = TlsSettings(keystore_location=BROKER.write(path))
    shake_hands(server_context(settings), client_context(trusting()))
    before = stamp_of(settings)
    assert before == stamp_of(settings)
    AUTHORITY.issue("CN=broker,O=renewed").write(path)
    assert before != stamp_of(settings)


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    path = BROKER.write(tmp_path / "broker.pem", password="opensesame")
    settings = TlsSettings(keystore_location=path)
    shake_hands(server_context(replace(settings, key_password="opensesame")), CLIENT)
    with pytest.raises(ConfigError, match=r"set ssl\.key\.password"):
        server_context(settings)
    with pytest.raises(ConfigError) as caught:
        server_context(replace(settings, key_password="wrong"))
    assert "wrong" not in str(caught.value).replace("is wrong", "")


CLIENT = client_context(trusting())


def test_pem_on_one_line_is_taken_as_kafka_takes_it() -> None:
    settings = TlsSettings(
        keystore_key=" ".join(BROKER.key_pem().split("\n")),
        keystore_certificate_chain="".join(BROKER.certificate_pem.split("\n")),
    )
    shake_hands(server_context(settings), CLIENT)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (TlsSettings(), r"needs a certificate: set ssl\.keystore\.location"),
        (TlsSettings(keystore_location="/nowhere/x.pem"), "/nowhere/x.pem: No such file"),
        (replace(inline(), truststore_certificates="", client_auth="required"), "truststore"),
        (inline(keystore_key=AUTHORITY.issue().key_pem()), "does not belong"),
        (inline(keystore_certificate_chain=""), "keystore"),
        (inline(truststore_certificates="nothing", client_auth="required"), "truststore"),
        (inline(enabled_protocols=("TLSv1.3",), protocol="TLSv1.2"), "no version of TLS"),
    ],
)
def test_settings_that_do_not_work_are_named(settings: TlsSettings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        server_context(settings)


def test_a_java_keystore_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "broker.jks"
    path.write_bytes(bytes.fromhex("feedfeed00000002"))
    path.chmod(0o600)
    for store_type in ("PEM", "JKS"):
        with pytest.raises(ConfigError, match=f"keytool -importkeystore -srckeystore {path}"):
            server_context(TlsSettings(keystore_type=store_type, keystore_location=str(path)))


def test_secrets_are_not_in_what_settings_print() -> None:
    settings = inline(key_password="canary", keystore_password="canary")
    assert "canary" not in repr(settings) and "PRIVATE" not in repr(settings)


def test_settings_are_read_under_kafkas_names() -> None:
    given = {"ssl.keystore.type": "PKCS12", "ssl.enabled.protocols": ["TLSv1.3"]}
    settings = tls_settings(given.get)
    assert settings == TlsSettings(keystore_type="PKCS12", enabled_protocols=("TLSv1.3",))
