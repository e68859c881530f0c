"""Who a certificate is: its subject as Java writes it, and the rules that make a principal."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tidelog.errors import ConfigError
from tidelog.security.distinguished_name import PrincipalRules, subject_of
from tidelog.testing.certificates import Authority

AUTHORITY = Authority()


def subject_with(*parts: list[tuple[x509.ObjectIdentifier, str]]) -> str:
    name = x509.Name(
        [
            x509.RelativeDistinguishedName(x509.NameAttribute(oid, value) for oid, value in part)
            for part in parts
        ]
    )
    issued = AUTHORITY.issue(name)
    return subject_of(issued.certificate.public_bytes(Encoding.DER))


def test_a_subject_is_written_from_its_last_part_to_its_first() -> None:
    assert (
        subject_with(
            [(NameOID.COUNTRY_NAME, "DE")],
            [(NameOID.ORGANIZATION_NAME, "Sea")],
            [(NameOID.ORGANIZATIONAL_UNIT_NAME, "Tide")],
            [(NameOID.COMMON_NAME, "alice")],
        )
        == "CN=alice,OU=Tide,O=Sea,C=DE"
    )


def test_an_attribute_without_a_keyword_is_written_in_hexadecimal() -> None:
    written = subject_with([(NameOID.EMAIL_ADDRESS, "a@b")], [(NameOID.COMMON_NAME, "alice")])
    assert written == "CN=alice,1.2.840.113549.1.9.1=#1603614062"


def test_x3_a_name_cannot_smuggle_in_another_part() -> None:
    written = subject_with([(NameOID.COMMON_NAME, "mallory,CN=admin")])
    assert written == "CN=mallory\\,CN\\=admin"
    rules = PrincipalRules("RULE:^CN=([^,\\\\]+)(,.*)?$/$1/")
    assert rules.name_of(written) is None
    assert rules.name_of("CN=admin,OU=x") == "admin"


def test_x3_a_rule_must_match_the_whole_name() -> None:
    rules = PrincipalRules("RULE:CN=admin/admin/")
    assert rules.name_of("CN=admin") == "admin"
    assert rules.name_of("CN=admin,OU=x") is None
    assert rules.name_of("OU=CN\\=admin,CN=mallory") is None
    assert rules.name_of("CN=admin\n") is None
    assert rules.name_of("cn=admin") is None


@pytest.mark.parametrize("text", ["", " ", "#x", 'q"q', "a+b", "a\\b", "<>", "\0"])
def test_x3_escapes_leave_one_reading(text: str) -> None:
    written = subject_with([(NameOID.COMMON_NAME, f"{text}x{text}")])
    unescaped = written.removeprefix("CN=").replace("\\00", "\0")
    assert unescaped.replace("\\\\", "\x01").replace("\\", "").replace("\x01", "\\") == (
        f"{text}x{text}"
    )


def test_rules_are_tried_in_their_order_and_change_the_case() -> None:
    rules = PrincipalRules(
        "RULE:^CN=(.*?),OU=Services.*$/$1/L, RULE:^CN=(.*?),OU=(.*)$/$1@$2/U,DEFAULT"
    )
    assert rules.name_of("CN=Pump,OU=Services,O=Sea") == "pump"
    assert rules.name_of("CN=alice,OU=tide") == "ALICE@TIDE"
    assert rules.name_of("O=Sea") == "O=Sea"
    assert PrincipalRules("").name_of("CN=a,O=b") == "CN=a,O=b"


@pytest.mark.parametrize(
    "text", ["RULE:CN=x", "RULE:(/x/", "RULE:CN=(.*)/$2/", "DEFAULTS", "RULE:a/b/X"]
)
def test_rules_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(text)


def test_bytes_that_are_no_certificate_raise_a_value_error() -> None:
    whole = AUTHORITY.issue().certificate.public_bytes(Encoding.DER)
    for size in range(0, len(whole), 7):
        with pytest.raises(ValueError):
            subject_of(whole[:size])
