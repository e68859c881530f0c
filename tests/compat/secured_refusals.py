"""The errors by which clients show that Apache Kafka 4.3.0 refuses them, by client and case.

A name is the client's own: librdkafka's code, the class of an exception, the error of Go's library.
`TIDELOG_LONG=1` compares the table with Apache Kafka itself, with the same certificates and users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_LOGINS = ("plain_password", "scram_256_password", "scram_512_password", "scram_unknown_user")
_TOKENS = ("token_expired", "token_audience")
_MECHANISM = "mechanism_not_offered"
_BROKERS = ("broker_name", "broker_expired", "broker_unknown")
_CERTIFICATES = ("certificate_missing", "certificate_expired", "certificate_unknown")
_FORBIDDEN = ("write_forbidden", "read_forbidden", "group_forbidden")


def _each(cases: Sequence[str], name: str) -> dict[str, str]:
    return dict.fromkeys(cases, name)


def _named(cases: Sequence[str], *names: str) -> dict[str, str]:
    return dict(zip(cases, names, strict=True))


_JAVA = {
    **_each((*_LOGINS, *_TOKENS), "SaslAuthenticationException"),
    _MECHANISM: "UnsupportedSaslMechanismException",
    **_each((*_BROKERS, *_CERTIFICATES), "SslAuthenticationException"),
    **_named(
        _FORBIDDEN,
        "TopicAuthorizationException",
        "TopicAuthorizationException",
        "GroupAuthorizationException",
    ),
}
BY_KAFKA: Mapping[str, Mapping[str, str]] = {
    "confluent-kafka": {
        **_each((*_LOGINS, *_TOKENS, _MECHANISM), "_AUTHENTICATION"),
        **_each(_BROKERS, "_SSL"),
        **_each(_CERTIFICATES, "_TRANSPORT"),
        **_named(
            _FORBIDDEN,
            "TOPIC_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
        ),
    },
    "kafka-python": {
        **_each((*_LOGINS, *_TOKENS, _MECHANISM), "KafkaTimeoutError"),
        **_each((*_BROKERS, *_CERTIFICATES), "KafkaTimeoutError"),
        **_named(
            _FORBIDDEN,
            "TopicAuthorizationFailedError",
            "GroupAuthorizationFailedError",
            "GroupAuthorizationFailedError",
        ),
    },
    "aiokafka": {
        **_each((*_LOGINS, _MECHANISM, *_BROKERS, *_CERTIFICATES), "KafkaConnectionError"),
        **_each(_TOKENS, "UnknownTopicOrPartitionError"),
        **_named(
            _FORBIDDEN,
            "TopicAuthorizationFailedError",
            "TopicAuthorizationFailedError",
            "GroupAuthorizationFailedError",
        ),
    },
    "franz-go": {
        **_each(_LOGINS, "SASL_AUTHENTICATION_FAILED"),
        _MECHANISM: "UNSUPPORTED_SASL_MECHANISM",
        **_each(_TOKENS, "*errors.errorString"),
        **_named(
            _BROKERS, "x509.HostnameError", "x509.CertificateInvalidError",
            "x509.UnknownAuthorityError",
        ),
        **_each(_CERTIFICATES, "tls alert"),
        **_named(
            _FORBIDDEN,
            "TOPIC_AUTHORIZATION_FAILED",
            "TOPIC_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
        ),
    },
    "java-3.9": _JAVA,
    "java-4.3": _JAVA,
    "kafkajs": {
        **_each(_LOGINS, "KafkaJSSASLAuthenticationError"),
        _MECHANISM: "KafkaJSProtocolError UNSUPPORTED_SASL_MECHANISM",
        **_each(_TOKENS, "KafkaJSProtocolError ILLEGAL_SASL_STATE"),
        **_named(
            _BROKERS,
            "KafkaJSConnectionError ERR_TLS_CERT_ALTNAME_INVALID",
            "KafkaJSConnectionError CERT_HAS_EXPIRED",
            "KafkaJSConnectionError UNABLE_TO_VERIFY_LEAF_SIGNATURE",
        ),
        **_each(_CERTIFICATES, "KafkaJSConnectionError alert"),
        **_named(
            _FORBIDDEN,
            "KafkaJSProtocolError TOPIC_AUTHORIZATION_FAILED",
            "KafkaJSProtocolError TOPIC_AUTHORIZATION_FAILED",
            "KafkaJSGroupCoordinatorNotFound",
        ),
    },
}  # fmt: skip

# Kafka refuses a token by a message within the mechanism, and by an error once the client has
# acknowledged that. These clients do not: they take the message for a success, or for nonsense.
# Tidelog refuses by the error at once, which every client understands.
# It takes the brokers' mechanism on every listener, so clients learn after the handshake that it is
# not for them.
BY_TIDELOG: Mapping[str, Mapping[str, str]] = {
    "confluent-kafka": {_MECHANISM: "UNSUPPORTED_SASL_MECHANISM"},
    "aiokafka": _each(_TOKENS, "KafkaConnectionError"),
    "franz-go": _each(_TOKENS, "SASL_AUTHENTICATION_FAILED"),
    # It looks by itself for the mechanism among those that the handshake's answer names.
    "kafkajs": _each((*_TOKENS, _MECHANISM), "KafkaJSSASLAuthenticationError"),
}


def expected(client: str, case: str, *, kafka: bool) -> str:
    by_kafka = BY_KAFKA[client][case]
    return by_kafka if kafka else BY_TIDELOG.get(client, {}).get(case, by_kafka)
