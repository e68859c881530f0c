"""How one listener knows who connects to it by TLS, SASL or both.

It is made of the settings in force. New settings, and files that have changed, count for new
connections; those that are open stay as they are. Settings that do not work are refused as a whole,
and what was in force goes on.
"""

from __future__ import annotations

import logging
import ssl
from functools import partial

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener, is_loopback
from tidelog.config.security_settings import OAUTHBEARER, PLAIN
from tidelog.errors import ConfigError
from tidelog.host.secret_files import changed_at
from tidelog.security.authorizer import ANONYMOUS, Principal
from tidelog.security.certified import Certified
from tidelog.security.jaas import PLAIN_MODULE, parse_jaas
from tidelog.security.tls import TlsSettings, server_context, stamp_of, tls_settings
from tidelog.server.listener_security import ListenerSecurity, refuse_broker_principals
from tidelog.server.tokens import Surroundings, Tokens

_log = logging.getLogger(__name__)


class SecuredListener(ListenerSecurity):
    """The security of one listener that asks for some."""

    def __init__(
        self, listener: Listener, config: BrokerConfig, around: Surroundings | None = None
    ) -> None:
        super().__init__(listener, config)
        self._around = around
        self._listener: Listener = listener
        self._context: ssl.SSLContext | None = None
        self._tls_stamp: tuple[object, ...] = ()
        self._stamp: tuple[object, ...] = ()
        # What was tried last and does not work.
        self._failed: tuple[BrokerConfig, tuple[object, ...]] | None = None
        self._certified: Certified | None = None
        self.take(config)

    def refresh(self, config: BrokerConfig) -> None:
        """Take what has changed since: the settings in force, or the files that they name."""
        listener = self._listener
        if self.tokens is not None:
            self.tokens.refresh()
        stamp = self._stamp_of(listener, config)
        if (config is self._config and stamp == self._stamp) or (config, stamp) == self._failed:
            return
        is_changed = stamp != self._stamp
        try:
            self.take(config)
        except ConfigError as error:
            self._failed = (config, stamp)
            _log.error("changed security is not used, what was in force goes on: %s", error)
        else:
            if is_changed:
                _log.info("keys and certificates taken again listener=%s", listener.name)

    def tls(self) -> ssl.SSLContext | None:
        """What a new connection is secured with."""
        return self._context

    def take(self, config: BrokerConfig) -> None:
        """Use these settings from now on; ConfigError where they do not work."""
        listener = self._listener
        try:
            context, stamp = self._made_context(listener, config)
            certified = _certified(listener, config)
            mechanisms, users = _sasl_of(listener, config)
            tokens = self._made_tokens(listener, config) if OAUTHBEARER in mechanisms else None
        except ConfigError as error:
            raise ConfigError(f"listener {listener.name}: {error}") from error
        self._config, self._context, self._tls_stamp = config, context, stamp
        self._certified, self.mechanisms, self.plain_users = certified, mechanisms, users
        self.tokens = tokens
        self._stamp = self._stamp_of(listener, config)

    def _made_context(
        self, listener: Listener, config: BrokerConfig
    ) -> tuple[ssl.SSLContext | None, tuple[object, ...]]:
        if not listener.is_tls:
            return None, ()
        settings = _tls_of(listener, config)
        stamp = stamp_of(settings)
        # Where nothing has changed the context stays, and with it the sessions that it has issued.
        return (self._context if stamp == self._tls_stamp else server_context(settings)), stamp

    def _made_tokens(self, listener: Listener, config: BrokerConfig) -> Tokens:
        """The same again where only an address is asked: what was fetched stays."""
        assert self._around is not None, "tokens need a clock"
        if self.tokens is not None and not self.tokens.file:
            return self.tokens
        return Tokens(listener, config, self._around)

    def _stamp_of(self, listener: Listener, config: BrokerConfig) -> tuple[object, ...]:
        """Something that differs once a file has changed that the settings name."""
        tls = stamp_of(_tls_of(listener, config)) if listener.is_tls else ()
        return tls, changed_at(self.tokens.file) if self.tokens is not None else None

    def close(self) -> None:
        if self.tokens is not None:
            self.tokens.close()

    def principal_of(self, tls: ssl.SSLObject | None) -> Principal:
        """Who a certificate says that this is; anonymous without one, and where SASL decides."""
        if tls is None or self.is_sasl or tls.context.verify_mode is ssl.CERT_NONE:
            return ANONYMOUS
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        assert self._certified is not None
        return self._certified.principal_of(certificate)


def check_security(config: BrokerConfig) -> None:
    """ConfigError where a listener could not be served with these settings and their files."""
    for listener in config.listeners.opened:
        try:
            if listener.is_tls:
                server_context(_tls_of(listener, config))
                _certified(listener, config)
            _sasl_of(listener, config)
        except ConfigError as error:
            raise ConfigError(f"listener {listener.name}: {error}") from None


def _tls_of(listener: Listener, config: BrokerConfig) -> TlsSettings:
    def get(name: str) -> object:
        # As in Kafka: where SASL decides who this is, only the listener's own counts.
        is_own = config.is_own_of_listener(listener.name, name)
        if name == "ssl.client.auth" and listener.is_sasl and not is_own:
            return None
        return config.for_listener(listener.name, name)

    return tls_settings(get)


def _certified(listener: Listener, config: BrokerConfig) -> Certified | None:
    """Who certificates are on a listener where they decide; ConfigError where that cannot be."""
    if not listener.is_tls or listener.is_sasl:
        refuse_broker_principals(listener, config)
        return None
    certified = Certified(partial(config.for_listener, listener.name))
    certified.check(_tls_of(listener, config))
    return certified


def _sasl_of(listener: Listener, config: BrokerConfig) -> tuple[tuple[str, ...], dict[str, str]]:
    if not listener.is_sasl:
        return (), {}
    enabled = config.for_listener(listener.name, "sasl.enabled.mechanisms")
    assert isinstance(enabled, list)
    if not enabled:
        raise ConfigError("sasl.enabled.mechanisms names no mechanism")
    if PLAIN not in enabled:
        return tuple(enabled), {}
    is_safe = listener.is_tls or is_loopback(listener.host)
    if not is_safe and not config.get_bool("sasl.plain.without.tls"):
        raise ConfigError(
            f"PLAIN would send passwords over {listener.host} in the clear; use SASL_SSL or"
            " SCRAM-SHA-512, or set sasl.plain.without.tls=true"
        )
    return tuple(enabled), _plain_users(listener, config)


def _plain_users(listener: Listener, config: BrokerConfig) -> dict[str, str]:
    text = config.for_listener(listener.name, "sasl.jaas.config", PLAIN)
    name = f"listener.name.{listener.name.lower()}.plain.sasl.jaas.config"
    if not text:
        raise ConfigError(f"PLAIN has no users; set {name}")
    try:
        login = parse_jaas(str(text))
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    if login.module != PLAIN_MODULE:
        raise ConfigError(f"{name}: the users of PLAIN stand with {PLAIN_MODULE}")
    return login.users
