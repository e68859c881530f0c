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
        "After how long the keys are fetched again. A token whose key is not known has them "
        "fetched as well, at most every ten seconds.",
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
        "The audiences of which a token must name one. It must be set, since a token for another "
        "service would be taken otherwise.",
    ),
    text(
        "sasl.oauthbearer.expected.issuer",
        None,
        "The issuer that a token must name. It must be set.",
    ),
    text(
        "sasl.oauthbearer.sub.claim.name",
        "sub",
        "The claim of a token that names the user.",
    ),
    integer(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "How far the clock of the issuer may be off.",
        minimum=0,
        maximum=30,
    ),
    boolean(
        "sasl.oauthbearer.unsecured.allowed",
        False,
        "Whether tokens that nobody has signed are taken, as Kafka's example of a login module "
        "makes them: anybody can be anybody. For development alone.",
        kafka=False,
    ),
)
