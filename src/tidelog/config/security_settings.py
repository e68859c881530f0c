"""The settings of TLS and SASL, for all listeners or, with a prefix, for one of them.

`listener.name.<listener>.<setting>` is stronger than `<setting>` on that listener;
`listener.name.<listener>.<mechanism>.sasl.jaas.config` belongs to one mechanism there. The names of
listeners and mechanisms are in lower case, as Kafka writes them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidelog.config.oauth_settings import OAUTH_SETTINGS
from tidelog.config.setting import Setting, Update, Value, boolean, items, long, password, text
from tidelog.errors import ConfigError

# What stands before a setting that one listener of a broker has for itself.
LISTENER_PREFIX: Final = "listener.name."
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
TLS_PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")

_PER_BROKER: Final = Update.PER_BROKER


def _check_principals(value: Value) -> None:
    for each in str(value).split(";"):
        kind, separator, name = each.strip().partition(":")
        if each.strip() and not (kind and separator and name):
            raise ConfigError(
                f"{each.strip()!r} is not a principal; write User:NAME, and a semicolon between two"
            )


_TLS: Final = (
    text(
        "ssl.keystore.type",
        "PEM",
        "The format of the keystore. A JKS file is refused with the command that converts it.",
        choices=STORE_TYPES,
        update=_PER_BROKER,
        kafka_default="JKS",
    ),
    text(
        "ssl.keystore.location",
        None,
        "The file with the broker's private key and its certificate chain. Only the broker's user"
        " may read it.",
        update=_PER_BROKER,
    ),
    password(
        "ssl.keystore.password", None, "The password of a PKCS12 keystore.", update=_PER_BROKER
    ),
    password(
        "ssl.keystore.key",
        None,
        "The private key itself in PEM, instead of a file.",
        update=_PER_BROKER,
    ),
    password(
        "ssl.keystore.certificate.chain",
        None,
        "The certificate chain itself in PEM, beside `ssl.keystore.key`.",
        update=_PER_BROKER,
    ),
    password(
        "ssl.key.password",
        None,
        "The password of an encrypted private key.",
        update=_PER_BROKER,
    ),
    text(
        "ssl.truststore.type",
        "PEM",
        "The format of the truststore.",
        choices=STORE_TYPES,
        update=_PER_BROKER,
        kafka_default="JKS",
    ),
    text(
        "ssl.truststore.location",
        None,
        "The file with the certificate authorities that must have signed the certificates of"
        " clients and other brokers. A revocation list in a PEM file is checked.",
        update=_PER_BROKER,
    ),
    password(
        "ssl.truststore.password", None, "The password of a PKCS12 truststore.", update=_PER_BROKER
    ),
    password(
        "ssl.truststore.certificates",
        None,
        "The certificate authorities themselves in PEM, instead of a file.",
        update=_PER_BROKER,
    ),
    text(
        "ssl.client.auth",
        "none",
        "Whether clients present a certificate: `required`, `requested` or `none`. On a SASL_SSL"
        " listener it applies only with the listener's prefix.",
        choices=("required", "requested", "none"),
        update=_PER_BROKER,
    ),
    items(
        "ssl.enabled.protocols",
        list(TLS_PROTOCOLS),
        "The supported TLS versions. Versions before 1.2 are not available.",
        choices=TLS_PROTOCOLS,
        update=_PER_BROKER,
    ),
    text(
        "ssl.protocol",
        "TLSv1.3",
        "The newest supported TLS version.",
        choices=TLS_PROTOCOLS,
        update=_PER_BROKER,
    ),
    items(
        "ssl.cipher.suites",
        [],
        "The cipher suites of TLS 1.2, by Java's names. Empty allows all with forward secrecy and"
        " authenticated encryption. Those of TLS 1.3 are always enabled.",
        update=_PER_BROKER,
    ),
    text(
        "ssl.endpoint.identification.algorithm",
        "https",
        "`https`: a broker that connects to another broker verifies that the certificate is for"
        " that host. Empty turns the check off.",
        update=_PER_BROKER,
    ),
    text(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "How the distinguished name of a client's certificate becomes its principal: rules"
        " `RULE:pattern/replacement/[LU]`, separated by commas. The first rule whose pattern"
        " matches the whole name applies. DEFAULT keeps the name unchanged.",
    ),
    text(
        "ssl.broker.principals",
        "",
        "The principals whose certificates identify a broker of this cluster on SSL listeners"
        " with `ssl.client.auth=required`, separated by semicolons:"
        " `User:CN=broker1;User:CN=broker2`. Brokers that use such a listener among themselves"
        " then need no other proof. Empty: brokers authenticate with the cluster's key.",
        check=_check_principals,
        kafka=False,
    ),
)

_SASL: Final = (
    items(
        "sasl.enabled.mechanisms",
        ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "The mechanisms that clients may use on SASL listeners. Kafka's default, Kerberos, is not"
        " supported.",
        choices=MECHANISMS,
        update=_PER_BROKER,
        kafka_default="GSSAPI",
    ),
    password(
        "sasl.jaas.config",
        None,
        "The users of PLAIN, as Kafka's login module takes them: `org.apache.kafka.common"
        '.security.plain.PlainLoginModule required user_alice="secret";`. It needs the prefix of '
        "a listener and a mechanism.",
        update=_PER_BROKER,
    ),
    long(
        "connections.max.reauth.ms",
        0,
        "How long a login on a SASL listener lasts: the client must authenticate again before"
        " that, or its next request closes the connection. 0 means no limit, but a token's own"
        " expiry always applies. It may have the prefix of a listener, or of a listener and a"
        " mechanism.",
        minimum=0,
    ),
    boolean(
        "sasl.plain.without.tls",
        False,
        "Whether PLAIN may be offered on a SASL_PLAINTEXT listener beyond this machine, where"
        " anyone on the network path can read the passwords.",
        kafka=False,
    ),
    text(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "If `inter.broker.listener.name` is not set, brokers use the listener with this protocol"
        " among themselves.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
)


# Apache Kafka's two, by the names of their classes; a short name of our own for both.
AUTHORIZERS: Final = (
    "",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "acl",
)

_AUTHORIZATION: Final = (
    text(
        "authorizer.class.name",
        "",
        "Who may do what. Empty: everyone may do everything. Kafka's"
        " `org.apache.kafka.metadata.authorizer.StandardAuthorizer`, or `acl` for short: only what"
        " access-control lists allow. Set it on every broker of the cluster.",
        choices=AUTHORIZERS,
    ),
    text(
        "super.users",
        "",
        "The principals that may do everything, whatever the access-control lists say, separated"
        " by semicolons: `User:admin;User:operator`.",
        check=_check_principals,
        kafka=False,
    ),
    boolean(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether everyone may do everything with a resource that no access-control list names.",
        kafka=False,
    ),
)

SECURITY_SETTINGS: Final = (*_TLS, *_SASL, *OAUTH_SETTINGS, *_AUTHORIZATION)
_OF_A_LISTENER: Final = {
    setting.name: setting
    for setting in SECURITY_SETTINGS
    if setting.name.startswith(("ssl.", "sasl.", "connections."))
}
_OF_A_MECHANISM: Final = (
    "sasl.jaas.config",
    "connections.max.reauth.ms",
    *(setting.name for setting in OAUTH_SETTINGS),
)


def listener_setting(name: str) -> Setting | None:
    """The row of a setting with the prefix of a listener; None where that is not one of ours."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    _, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    if rest not in _OF_A_LISTENER:
        mechanism, _, rest = rest.partition(".")
        if mechanism.upper() not in MECHANISMS or rest not in _OF_A_MECHANISM:
            return None
    return replace(_OF_A_LISTENER[rest], name=name, default=None, shown_unset=False)
