"""How a client secures its connections: Kafka's client settings, read and checked.

    security = read_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
                              "sasl.username": "alice", "sasl.password": "…"})
    Client("broker:9093", ClientSettings(security=security))

Names are Kafka's; some of librdkafka's for the same things are understood, too. Certificates and
keys are PEM, in files or in the settings themselves, or PKCS12. Promises: nothing secret is in a
`repr` or an error; a name that looks like a security setting and is none is refused. Imports no
`ssl`: that is left to the first connection.

Left out: JKS, GSSAPI, and tokens that a client fetches by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.errors import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_ALGORITHM: Final = "ssl.endpoint.identification.algorithm"

# librdkafka's names of what Kafka has a name for.
_ALIASES: Final = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.mechanisms": "sasl.mechanism",
}
_TLS_NAMES: Final = (
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
    "ssl.protocol",
    "ssl.cipher.suites",
)
_SASL_NAMES: Final = (
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.token",
    "sasl.oauthbearer.token.file",
)
_KNOWN: Final = ("security.protocol", *_SASL_NAMES, *_TLS_NAMES)
# For Java alone: they have no meaning here.
_IGNORED: Final = (
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
)
SECURITY_NAMES: Final = (*_KNOWN, *_ALIASES)
# Values that no output may show.
SECRET_NAMES: Final = (
    "sasl.jaas.config",
    "sasl.password",
    "sasl.oauthbearer.token",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.key.pem",
    "ssl.keystore.password",
    "ssl.truststore.password",
)
_FAMILIES: Final = ("ssl.", "sasl.", "security.")
_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")


@dataclass(slots=True, frozen=True)
class TlsOptions:
    """The `ssl.*` settings of a client under Kafka's names; files are read when it connects."""

    values: tuple[tuple[str, str | tuple[str, ...]], ...] = field(repr=False)

    def get(self, name: str) -> str | list[str] | None:
        """The value of a setting; None where it is not set."""
        found = dict(self.values).get(name)
        return list(found) if isinstance(found, tuple) else found


@dataclass(slots=True, frozen=True)
class SaslOptions:
    """How a client says who it is."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    # Read again at every log-in, since tokens expire.
    token_file: str | None = None


@dataclass(slots=True, frozen=True)
class ClientSecurity:
    """What a client's connections are secured by; nothing, unless it is said."""

    tls: TlsOptions | None = None
    sasl: SaslOptions | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name for it."""
        if self.sasl is None:
            return "PLAINTEXT" if self.tls is None else "SSL"
        return "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL"


OPEN: Final = ClientSecurity()


def is_security_name(name: str) -> bool:
    """True for what `read_security` would look at or refuse."""
    return name.startswith(_FAMILIES)


def read_security(settings: Mapping[str, str]) -> ClientSecurity:
    """The security in a client's settings, others left alone; ConfigError names what is wrong."""
    values = _known(settings)
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        shown = values["security.protocol"]
        raise ConfigError(f"security.protocol is '{shown}'; give {_either(PROTOCOLS)}")
    if protocol == "PLAINTEXT" and (secured := [name for name in values if name in _KNOWN[1:]]):
        raise ConfigError(
            f"{secured[0]} is set, but security.protocol is PLAINTEXT; give SSL, SASL_PLAINTEXT"
            " or SASL_SSL"
        )
    return ClientSecurity(
        _tls(values) if protocol in ("SSL", "SASL_SSL") else None,
        _sasl(values) if protocol.startswith("SASL_") else None,
    )


def _known(settings: Mapping[str, str]) -> dict[str, str]:
    """The security settings that are not empty, under Kafka's names."""
    values = {}
    for name, value in settings.items():
        if not is_security_name(name) or name in _IGNORED:
            continue
        known = _ALIASES.get(name, name)
        if known not in _KNOWN:
            raise ConfigError(f"{name} is not supported; there are {', '.join(SECURITY_NAMES)}")
        # An empty algorithm is Kafka's way to switch the check of names off.
        if value.strip() or known == "ssl.endpoint.identification.algorithm":
            values[known] = value
    return values


def _tls(values: Mapping[str, str]) -> TlsOptions:
    found: dict[str, str | tuple[str, ...]] = {
        n: v.strip() for n, v in values.items() if n in _TLS_NAMES
    }
    for store in ("truststore", "keystore"):
        found[f"ssl.{store}.type"] = _store_type(values, store)
    key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    if (key in values) != (chain in values):
        raise ConfigError(f"{key} and {chain} are given together")
    algorithm = values.get(_ALGORITHM, "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise ConfigError(
            f"{_ALGORITHM} is '{algorithm}'; give https, or nothing to take a certificate with any"
            " name"
        )
    found[_ALGORITHM] = algorithm
    versions = _listed(values.get("ssl.enabled.protocols", ",".join(TLS_VERSIONS)))
    newest = values.get("ssl.protocol", "TLS").strip()
    if newest == "TLS":
        newest = TLS_VERSIONS[-1]
    if unknown := [each for each in (*versions, newest) if each not in TLS_VERSIONS]:
        raise ConfigError(
            f"ssl.enabled.protocols, ssl.protocol: {unknown[0]} is not offered; there are"
            f" {' and '.join(TLS_VERSIONS)}"
        )
    found["ssl.enabled.protocols"], found["ssl.protocol"] = versions, newest
    found["ssl.cipher.suites"] = _listed(values.get("ssl.cipher.suites", ""))
    return TlsOptions(tuple(found.items()))


def _store_type(values: Mapping[str, str], store: str) -> str:
    """PEM, unless it is said or the file's name says otherwise."""
    location = values.get(f"ssl.{store}.location", "").strip().lower()
    by_name = "PKCS12" if location.endswith((".p12", ".pfx")) else "PEM"
    kind = values.get(f"ssl.{store}.type", by_name).strip().upper()
    if kind not in _STORE_TYPES:
        raise ConfigError(f"ssl.{store}.type is '{kind}'; give PEM or PKCS12")
    return kind


def _sasl(values: Mapping[str, str]) -> SaslOptions:
    mechanism = values.get("sasl.mechanism", "").upper()
    if mechanism not in MECHANISMS:
        said = f"sasl.mechanism is '{mechanism}'" if mechanism else "sasl.mechanism is missing"
        raise ConfigError(f"{said}; give {_either(MECHANISMS)}")
    options = _jaas_options(values, mechanism)
    if mechanism == "OAUTHBEARER":
        token = values.get("sasl.oauthbearer.token", "").strip()
        file = values.get("sasl.oauthbearer.token.file")
        if bool(token) == bool(file):
            raise ConfigError(
                "OAUTHBEARER needs sasl.oauthbearer.token or sasl.oauthbearer.token.file"
            )
        return SaslOptions(mechanism, token=token, token_file=file)
    username = values.get("sasl.username", options.get("username", ""))
    password = values.get("sasl.password", options.get("password", ""))
    if not username or not password:
        missing = "password" if username else "username"
        raise ConfigError(
            f"{mechanism} needs a {missing}: set sasl.{missing}, or {missing}=… in sasl.jaas.config"
        )
    return SaslOptions(mechanism, username, password)


def _jaas_options(values: Mapping[str, str], mechanism: str) -> Mapping[str, str]:
    text = values.get("sasl.jaas.config")
    if text is None:
        return {}
    from tidelog.security.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, parse_jaas

    needed = {"PLAIN": PLAIN_MODULE, "OAUTHBEARER": OAUTH_MODULE}.get(mechanism, SCRAM_MODULE)
    try:
        module, options = parse_jaas(text)
    except ConfigError as error:
        raise ConfigError(f"sasl.jaas.config: {error}") from None
    if module != needed:
        raise ConfigError(
            f"sasl.jaas.config names {module}, but sasl.mechanism {mechanism} needs {needed}"
        )
    return options


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _either(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}"
