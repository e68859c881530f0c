"""TLS contexts out of Kafka's `ssl.*` settings, for those who listen and those who connect.

Promises: TLS 1.2 and 1.3 alone, without compression or renegotiation, with suites that have forward
secrecy; a private key that others may read is refused; every fault is a `ConfigError` that names
the setting, never a key or a password.

PEM needs nothing but the standard library. PKCS12 needs the extra `security`. JKS is refused with
the command that converts it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tidelog.errors import ConfigError
from tidelog.host.secret_files import as_file, changed_at, read_file, read_secret
from tidelog.host.tls_alerts import ListeningContext

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_DEFAULT_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
# Java's names of the suites that are offered with TLS 1.2.
_SUITES: Final = {
    f"TLS_ECDHE_{key}_WITH_{java}": f"ECDHE-{key}-{ours}"
    for key in ("RSA", "ECDSA")
    for java, ours in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
_SUITES_13: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
_JKS_MAGIC: Final = bytes.fromhex("feedfeed")
_DER_SEQUENCE: Final = b"\x30"
_CRL_MARK: Final = b"-----BEGIN X509 CRL-----"
# One without headers, which only keys in an old format of encryption have.
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*)-----END \1-----\s*")
_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


@dataclass(slots=True, frozen=True)
class TlsSettings:
    """The `ssl.*` settings of one listener or of one client; empty where nothing is set."""

    keystore_type: str = "PEM"
    keystore_location: str = ""
    keystore_password: str = field(default="", repr=False)
    keystore_key: str = field(default="", repr=False)
    keystore_certificate_chain: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore_type: str = "PEM"
    truststore_location: str = ""
    truststore_password: str = field(default="", repr=False)
    truststore_certificates: str = field(default="", repr=False)
    client_auth: str = "none"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    protocol: str = "TLSv1.3"
    cipher_suites: tuple[str, ...] = ()
    endpoint_identification_algorithm: str = "https"

    @property
    def has_key(self) -> bool:
        return bool(self.keystore_location or self.keystore_key)

    @property
    def has_trust(self) -> bool:
        return bool(self.truststore_location or self.truststore_certificates)


def tls_settings(get: Callable[[str], object]) -> TlsSettings:
    """The settings out of a look-up by Kafka's names."""
    values = {}
    for name in TlsSettings.__dataclass_fields__:
        value = get("ssl." + name.replace("_", "."))
        if value is not None:
            values[name] = tuple(value) if isinstance(value, list) else str(value)
    return TlsSettings(**values)  # type: ignore[arg-type]


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """For those who listen."""
    if not settings.has_key:
        raise ConfigError(
            "a TLS listener needs a certificate: set ssl.keystore.location, or ssl.keystore.key"
            " and ssl.keystore.certificate.chain"
        )
    context = ListeningContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, settings)
    _load_key(context, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.client_auth != "none":
        if not settings.has_trust:
            raise ConfigError(
                f"ssl.client.auth={settings.client_auth} needs the certificate authorities of the"
                " clients: set ssl.truststore.location"
            )
        _load_trust(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """For those who connect; without a truststore the authorities of the system are trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings)
    context.check_hostname = settings.endpoint_identification_algorithm.lower() == "https"
    context.verify_mode = ssl.CERT_REQUIRED
    if settings.has_trust:
        _load_trust(context, settings)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.has_key:
        _load_key(context, settings)
    return context


def stamp_of(settings: TlsSettings) -> tuple[object, ...]:
    """Something that differs once the settings, or the files that they name, have changed."""
    return (
        settings,
        *(changed_at(each) for each in (settings.keystore_location, settings.truststore_location)),
    )


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    newest = _VERSIONS[settings.protocol]
    versions = [each for name, each in _VERSIONS.items() if name in settings.enabled_protocols]
    versions = [each for each in versions if each <= newest]
    if not versions:
        raise ConfigError(
            f"ssl.enabled.protocols={','.join(settings.enabled_protocols)} leaves no version of TLS"
            f" up to ssl.protocol={settings.protocol}"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= (
        ssl.OP_NO_COMPRESSION
        | ssl.OP_NO_RENEGOTIATION
        | ssl.OP_CIPHER_SERVER_PREFERENCE
        | ssl.OP_SINGLE_ECDH_USE
    )
    context.set_ciphers(_ciphers(settings.cipher_suites))


def _ciphers(suites: tuple[str, ...]) -> str:
    unknown = [each for each in suites if each not in _SUITES and each not in _SUITES_13]
    if unknown:
        raise ConfigError(
            f"ssl.cipher.suites: {', '.join(unknown)} is not offered; there are "
            + ", ".join((*_SUITES, *_SUITES_13))
        )
    return ":".join(_SUITES[each] for each in suites if each in _SUITES) or _DEFAULT_CIPHERS


def own_certificate(settings: TlsSettings) -> bytes:
    """The certificate, in DER, that these settings show to others."""
    pem, place = _keystore(settings)
    found = _CERTIFICATE.search(pem)
    if found is None:
        raise ConfigError(f"{place}: there is no certificate in PEM")
    return ssl.PEM_cert_to_DER_cert(found[0].decode("ascii", "replace"))


def _keystore(settings: TlsSettings) -> tuple[bytes, str]:
    """The private key with its chain in PEM, and where it is from."""
    if settings.keystore_key:
        pem = _wrapped(f"{settings.keystore_key}\n{settings.keystore_certificate_chain}")
        return pem, "ssl.keystore.key"
    place = settings.keystore_location
    data = _read(read_secret, place, "ssl.keystore.location")
    pem = _as_pem(data, "ssl.keystore", settings.keystore_type, place)
    if settings.keystore_type == "PKCS12":
        from tidelog.security.pkcs12 import key_and_chain

        pem = key_and_chain(data, settings.keystore_password, place)
    return pem, place


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    pem, place = _keystore(settings)
    # A PKCS12 container was opened with a password of its own: what is left needs none.
    is_open = not settings.keystore_key and settings.keystore_type == "PKCS12"
    password = "" if is_open else settings.key_password  # nosec B105

    def tell_password() -> str:
        # Without a function OpenSSL would ask on the terminal.
        if not password:
            raise ConfigError(f"{place}: the private key is encrypted; set ssl.key.password")
        return password

    with as_file(pem) as path:
        try:
            context.load_cert_chain(path, password=tell_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(f"{place}: {_reason(error)}") from None


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.truststore_certificates:
        pem, place = _wrapped(settings.truststore_certificates), "ssl.truststore.certificates"
    else:
        place = settings.truststore_location
        data = _read(read_file, place, "ssl.truststore.location")
        pem = _as_pem(data, "ssl.truststore", settings.truststore_type, place)
        if settings.truststore_type == "PKCS12":
            from tidelog.security.pkcs12 import certificates

            pem = certificates(data, settings.truststore_password, place)
    with as_file(pem) as path:
        try:
            context.load_verify_locations(cafile=path)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"{place}: {_reason(error)}") from None
    if _CRL_MARK in pem:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _read(read: Callable[[str], bytes], place: str, setting: str) -> bytes:
    try:
        return read(place)
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from None


def _wrapped(text: str) -> bytes:
    """PEM as OpenSSL reads it: in a file of settings it often stands on one line."""

    def wrap(block: re.Match[str]) -> str:
        label, body = block[1], "".join(block[2].split())
        lines = (body[at : at + 64] for at in range(0, len(body), 64))
        return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))

    return _BLOCK.sub(wrap, text).encode()


def _as_pem(data: bytes, name: str, store_type: str, place: str) -> bytes:
    """The bytes of a store, if they are what its type says."""
    if store_type == "JKS" or data.startswith(_JKS_MAGIC):
        raise ConfigError(
            f"{place}: JKS is not read; convert it with"
            f" keytool -importkeystore -srckeystore {place} -destkeystore {place}.p12"
            f" -deststoretype PKCS12, and set {name}.location={place}.p12 and {name}.type=PKCS12"
        )
    if store_type == "PEM" and data.startswith(_DER_SEQUENCE):
        raise ConfigError(f"{place}: this is no PEM; for a PKCS12 file set {name}.type=PKCS12")
    return data


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return {
        "KEY_VALUES_MISMATCH": "the private key does not belong to the certificate",
        "NO_START_LINE": "there is no private key with its certificate in PEM",
        "BAD_DECRYPT": "the password of the private key is wrong",
    }.get(reason or "", reason or str(error) or type(error).__name__)
