"""What a listener needs to judge the tokens of OAUTHBEARER."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.config.security_settings import OAUTHBEARER
from tidelog.errors import ConfigError
from tidelog.host.clock import Clock
from tidelog.host.offload import Offload
from tidelog.host.secret_files import read_file
from tidelog.security.oauth import Keys, OAuthServer, TokenRules
from tidelog.security.token_keys import FetchedKeys, FixedKeys

_PREFIX = "sasl.oauthbearer."


class Surroundings(NamedTuple):
    """The time, and threads for what blocks."""

    clock: Clock
    offload: Offload


class Tokens:
    """The rules for tokens, and the keys that sign them."""

    def __init__(self, listener: Listener, config: BrokerConfig, around: Surroundings) -> None:
        def get(name: str) -> object:
            return config.for_listener(listener.name, _PREFIX + name, OAUTHBEARER)

        self._clock = around.clock
        audiences, skew = get("expected.audience"), get("clock.skew.seconds")
        assert isinstance(skew, int)
        self._rules = TokenRules(
            tuple(audiences) if isinstance(audiences, list) else (),
            str(get("expected.issuer") or ""),
            str(get("sub.claim.name")),
            skew,
            bool(get("unsecured.allowed")),
        )
        self.url, self.file = str(get("jwks.endpoint.url") or ""), str(get("jwks.file") or "")
        self._refresh_ms = get("jwks.endpoint.refresh.ms")
        self._check()
        self._keys = self._made_keys(around)

    def server(self) -> OAuthServer:
        """Our side of an exchange."""
        return OAuthServer(self._rules, self._keys, self._now_s)

    def remaining_ms(self, ends_at_s: float) -> int:
        """For how long a token is good, by our clock; at least a moment."""
        return max(1, int((ends_at_s - self._now_s()) * 1000))

    def refresh(self) -> None:
        if isinstance(self._keys, FetchedKeys):
            self._keys.refresh()

    def close(self) -> None:
        if isinstance(self._keys, FetchedKeys):
            self._keys.close()

    def _now_s(self) -> float:
        return self._clock.wall_ms() / 1000

    def _check(self) -> None:
        rules = self._rules
        if not (self.url or self.file):
            if not rules.allows_unsigned:
                raise ConfigError(
                    f"OAUTHBEARER needs the keys that sign tokens: set {_PREFIX}jwks.endpoint.url"
                    f" or {_PREFIX}jwks.file"
                )
            return
        if self.url and self.file:
            raise ConfigError(f"{_PREFIX}jwks.endpoint.url and {_PREFIX}jwks.file are both set")
        if not rules.issuer or not rules.audiences:
            raise ConfigError(
                f"OAUTHBEARER needs {_PREFIX}expected.issuer and {_PREFIX}expected.audience:"
                " tokens for other services would be taken otherwise"
            )

    def _made_keys(self, around: Surroundings) -> Keys | None:
        if self.file:
            try:
                return FixedKeys(read_file(self.file).decode())
            except UnicodeDecodeError:
                raise ConfigError(f"{self.file}: this is no JWKS") from None
            except ConfigError as error:
                raise ConfigError(f"{self.file}: {error}") from None
        if not self.url:
            return None
        assert isinstance(self._refresh_ms, int)
        # What speaks HTTP takes a while to be imported.
        from tidelog.host.https import fetch

        url, offload = self.url, around.offload
        return FetchedKeys(lambda: offload.run(fetch, url), self._refresh_ms / 1000, around.clock)
