"""Who a verified certificate is: a principal, and perhaps a broker of this cluster.

A certificate makes a broker only where `ssl.broker.principals` of that listener names its
principal. `super.users` does not: an administrator must not be able to act as a replica.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.errors import ConfigError, TidelogError
from tidelog.security.authorizer import Principal, listed_principals
from tidelog.security.distinguished_name import PrincipalRules, subject_of
from tidelog.security.tls import TlsSettings, own_certificate


class UnknownPrincipalError(TidelogError):
    """The certificate is good, and no rule says who this is."""


class Certified:
    """What the settings of one listener say of certificates; `get` looks a setting up."""

    def __init__(self, get: Callable[[str], object]) -> None:
        self._rules = PrincipalRules(str(get("ssl.principal.mapping.rules")))
        self._brokers = listed_principals(str(get("ssl.broker.principals") or ""))

    @property
    def knows_brokers(self) -> bool:
        return bool(self._brokers)

    def principal_of(self, certificate: bytes) -> Principal:
        """The principal of a certificate in DER, which was verified before."""
        subject = subject_of(certificate)
        name = self._rules.name_of(subject)
        if not name:
            raise UnknownPrincipalError(
                f"no rule of ssl.principal.mapping.rules fits the certificate of {subject}"
            )
        principal = f"User:{name}"
        return Principal(principal, is_broker=principal in self._brokers)

    def check(self, settings: TlsSettings) -> None:
        """ConfigError where brokers with these settings could not know each other."""
        if not self._brokers:
            return
        if settings.client_auth != "required":
            raise ConfigError(
                "ssl.broker.principals needs ssl.client.auth=required: brokers are known by their"
                " certificates"
            )
        try:
            own = self.principal_of(own_certificate(settings))
        except (UnknownPrincipalError, ValueError) as error:
            raise ConfigError(f"this broker's own certificate: {error}") from None
        if not own.is_broker:
            raise ConfigError(
                f"ssl.broker.principals does not name {own.name}, which is this broker's own"
                " certificate; add it, on every broker"
            )
