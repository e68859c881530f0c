"""Certificates made for a test: an authority, and what it signs. Needs the extra `security`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

_NOW = datetime.now(UTC)
_CURVE = ec.SECP256R1()


@dataclass
class Identity:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    # No password leaves a key of a test unencrypted.
    def key_pem(self, password: str = "") -> str:  # nosec B107
        secrecy = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secrecy).decode()

    def write(self, path: Path, mode: int = 0o600, password: str = "") -> str:  # nosec B107
        """The key and the certificate in one file, as Kafka's PEM keystores have them."""
        path.write_text(self.key_pem(password) + self.certificate_pem)
        os.chmod(path, mode)
        return str(path)


def subject(name: str) -> x509.Name:
    """A distinguished name as RFC 4514 writes it."""
    return x509.Name.from_rfc4514_string(name)


class Authority:
    """Signs certificates; its own signs itself."""

    def __init__(self, name: str = "CN=authority") -> None:
        self._key = ec.generate_private_key(_CURVE)
        builder = _builder(subject(name), self._key).issuer_name(subject(name))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        self.certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write(self, path: Path) -> str:
        path.write_text(self.pem)
        return str(path)

    def issue(
        self,
        name: str | x509.Name = "CN=broker",
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        *,
        expired: bool = False,
    ) -> Identity:
        key = ec.generate_private_key(_CURVE)
        who = subject(name) if isinstance(name, str) else name
        builder = _builder(who, key, expired=expired).issuer_name(self.certificate.subject)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_host(each) for each in hosts]), False
        )
        return Identity(builder.sign(self._key, hashes.SHA256()), key)

    def revoke(self, identity: Identity) -> str:
        """A revocation list that names one certificate, in PEM."""
        entry = (
            x509.RevokedCertificateBuilder()
            .serial_number(identity.certificate.serial_number)
            .revocation_date(_NOW - timedelta(hours=1))
            .build()
        )
        made = x509.CertificateRevocationListBuilder(
            self.certificate.subject,
            _NOW - timedelta(hours=1),
            _NOW + timedelta(days=1),
        ).add_revoked_certificate(entry)
        return made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def _builder(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False
) -> x509.CertificateBuilder:
    end = _NOW - timedelta(hours=1) if expired else _NOW + timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - timedelta(days=2))
        .not_valid_after(end)
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
