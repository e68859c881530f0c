"""The settings of OAUTHBEARER: which tokens are taken, and who has signed them."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from tidelog.config.setting import Value, boolean, integer, items, long, text
from tidelog.errors import ConfigError


def _check_https(value: Value) -> None:
    if value and urlsplit(str(value)).scheme != "https":
        raise ConfigError(
            "only https is asked for keys; for a file set sasl.oauthbearer.jwks.file to its path"
        )


OAUTH_SETTINGS: Final = (
    text(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        "The https address of the keys that sign tokens, as a JWKS. Redirects are not followed.",
        check=_check_https,
    ),
    long(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "How often the keys are fetched again. A token with an unknown key also triggers a fetch,"
        " at most every ten seconds.",
        minimum=1,
    ),
    text(
        "sasl.oauthbearer.jwks.file",
        "",
        "A file with the keys that sign tokens, as a JWKS, instead of an address. It is read "
        "again when it changes.",
        kafka=False,
    ),
    items(
        "sasl.oauthbearer.expected.audience",
        [],
        "The audiences of which a token must name one. Required, because otherwise a token for"
        " another service would be accepted.",
    ),
    text(
        "sasl.oauthbearer.expected.issuer",
        None,
        "The issuer that a token must name. Required.",
    ),
    text(
        "sasl.oauthbearer.sub.claim.name",
        "sub",
        "The claim of a token that names the user.",
    ),
    integer(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "How far the issuer's clock may be off.",
        minimum=0,
        maximum=30,
    ),
    boolean(
        "sasl.oauthbearer.unsecured.allowed",
        False,
        "Whether unsigned tokens are accepted, such as those of Kafka's example login module:"
        " anyone can be anyone. Only for development.",
        kafka=False,
    ),
)
