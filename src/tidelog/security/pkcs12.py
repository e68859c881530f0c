"""Keystores and truststores in PKCS12, turned into PEM; needs the extra `security`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates


def key_and_chain(data: bytes, password: str, place: str) -> bytes:
    """The private key, its certificate and the chain in PEM."""
    store = _load(data, password, place)
    if store.key is None or store.cert is None:
        raise ConfigError(f"{place}: there is no private key with its certificate")
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = (store.cert, *store.additional_certs)
    return key + b"".join(each.certificate.public_bytes(Encoding.PEM) for each in chain)


def certificates(data: bytes, password: str, place: str) -> bytes:
    """All certificates in PEM."""
    store = _load(data, password, place)
    from cryptography.hazmat.primitives.serialization import Encoding

    found = [*((store.cert,) if store.cert else ()), *store.additional_certs]
    if not found:
        raise ConfigError(f"{place}: there is no certificate")
    return b"".join(each.certificate.public_bytes(Encoding.PEM) for each in found)


def _load(data: bytes, password: str, place: str) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigError(
            f"{place}: PKCS12 needs the extra: pip install 'tidelog[security]'; or convert it with"
            f" openssl pkcs12 -in {place} -nodes -out broker.pem, and set the type to PEM"
        ) from None
    try:
        return load_pkcs12(data, password.encode() or None)
    except ValueError:
        raise ConfigError(f"{place}: this is no PKCS12 file, or its password is wrong") from None
