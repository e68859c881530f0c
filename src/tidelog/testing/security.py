"""Secured brokers for tests: certificates made on the fly, users, and what clients need to know.

    with Broker(security=Security(users={"alice": "secret"})) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers,
                             **broker.librdkafka_settings("alice")})

`SSL` is mutual TLS: each user has a certificate, and its name is the principal. With SASL a user
has a password. TLS needs the extra `security`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidelog.errors import ConfigError

PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES: Final = "org.apache.kafka.common.security"
_PLAIN_MODULE: Final = "plain.PlainLoginModule"
_SCRAM_MODULE: Final = "scram.ScramLoginModule"
_BROKER: Final = "broker"
_AUTHORITY: Final = "ca"
_NAME_RULE: Final = "RULE:^CN=([^,]+)$/$1/"


@dataclass(slots=True, frozen=True)
class Security:
    """How a test's broker is secured, and the passwords of its users."""

    protocol: str = "SASL_SSL"
    mechanism: str = "SCRAM-SHA-512"
    users: Mapping[str, str] = field(default_factory=lambda: {"alice": "alice-secret"}, repr=False)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"security: '{self.protocol}'; there are {', '.join(PROTOCOLS)}")
        if self.mechanism not in MECHANISMS:
            raise ConfigError(f"mechanism: '{self.mechanism}'; there are {', '.join(MECHANISMS)}")
        if not self.users or any('"' in text for pair in self.users.items() for text in pair):
            raise ConfigError("users: give at least one, without quotation marks")
        taken = {_BROKER, _AUTHORITY}.intersection(self.users)
        if taken and not self.is_sasl:
            raise ConfigError(f"users: '{min(taken)}' is a certificate of the broker's own")

    @property
    def is_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def is_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def scram_users(self) -> Mapping[str, str]:
        """The users that are kept in the metadata."""
        return self.users if self.is_sasl and self.mechanism != "PLAIN" else {}


class SecretFiles:
    """The keys of a secured broker and of its users, in a directory of their own."""

    def __init__(self, security: Security, directory: str) -> None:
        self._security = security
        self._directory = Path(directory)
        if security.is_tls:
            self._issue()

    def _issue(self) -> None:
        try:
            from tidelog.testing.certificates import Authority
        except ImportError as error:
            raise ConfigError(
                "certificates are made by the extra: pip install 'tidelog[security]'"
            ) from error
        authority = Authority("CN=tidelog-test")
        authority.write(self._path(_AUTHORITY))
        authority.issue(f"CN={_BROKER}").write(self._path(_BROKER))
        for user in () if self._security.is_sasl else self._security.users:
            identity = authority.issue(f"CN={user}")
            identity.write(self._path(user))

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.pem"

    def broker_settings(self) -> dict[str, str]:
        """What the broker is started with, its listener aside."""
        security = self._security
        settings: dict[str, str] = {}
        if security.is_tls:
            settings |= {
                "ssl.keystore.location": str(self._path(_BROKER)),
                "ssl.truststore.location": str(self._path(_AUTHORITY)),
            }
        if not security.is_sasl:
            return settings | {
                "ssl.client.auth": "required",
                "ssl.principal.mapping.rules": _NAME_RULE,
            }
        settings["sasl.enabled.mechanisms"] = security.mechanism
        if security.mechanism == "PLAIN":
            users = " ".join(f'user_{user}="{word}"' for user, word in security.users.items())
            name = f"listener.name.{security.protocol.lower()}.plain.sasl.jaas.config"
            settings[name] = f"{_MODULES}.{_PLAIN_MODULE} required {users};"
        return settings

    def settings_file(self) -> str:
        """The broker's settings in a file, for a process: no command line shows them."""
        lines = [f"{name}={value}" for name, value in self.broker_settings().items()]
        return self._written("broker.properties", "\n".join(lines))

    def password_files(self) -> dict[str, str]:
        """A file with the password of each user that is kept in the metadata."""
        return {
            user: self._written(f"password-{number}", password)
            for number, (user, password) in enumerate(self._security.scram_users.items())
        }

    def _written(self, name: str, text: str) -> str:
        path = self._directory / name
        path.touch(mode=0o600)
        path.write_text(text)
        return str(path)

    def client_settings(self, user: str) -> dict[str, str]:
        """Under Kafka's names, as a client.properties has them."""
        security, password = self._security, self._password(user)
        settings = {"security.protocol": security.protocol}
        if security.is_tls:
            settings |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._path(_AUTHORITY)),
            }
        if not security.is_sasl:
            return settings | {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._path(user)),
            }
        kind = _PLAIN_MODULE if security.mechanism == "PLAIN" else _SCRAM_MODULE
        return settings | {
            "sasl.mechanism": security.mechanism,
            "sasl.jaas.config": f"{_MODULES}.{kind} required"
            f' username="{user}" password="{password}";',
        }

    def librdkafka_settings(self, user: str) -> dict[str, str]:
        """Under librdkafka's names, for confluent-kafka and kcat."""
        security, password = self._security, self._password(user)
        settings = {"security.protocol": security.protocol}
        if security.is_tls:
            settings["ssl.ca.location"] = str(self._path(_AUTHORITY))
        if not security.is_sasl:
            own = os.fspath(self._path(user))
            return settings | {"ssl.certificate.location": own, "ssl.key.location": own}
        return settings | {
            "sasl.mechanism": security.mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def _password(self, user: str) -> str:
        if user not in self._security.users:
            raise ConfigError(f"no user '{user}'; there are {', '.join(self._security.users)}")
        return self._security.users[user]


class Secured:
    """What a broker and a cluster have in common: keys while they run, and users who know them."""

    def __init__(self, security: Security | str | None) -> None:
        self._security = Security(security) if isinstance(security, str) else security
        self._secrets: SecretFiles | None = None
        self._secrets_directory: str | None = None

    def client_settings(self, user: str) -> dict[str, str]:
        """How a client connects as this user, under Kafka's names; all but the servers."""
        return self._secret_files().client_settings(user)

    def librdkafka_settings(self, user: str) -> dict[str, str]:
        """The same under the names of confluent-kafka."""
        return self._secret_files().librdkafka_settings(user)

    def _secret_files(self) -> SecretFiles:
        if self._secrets is None:
            kind = type(self).__name__
            raise ConfigError(
                f"this {kind.lower()} is not secured, or does not run: {kind}(security=…)"
            )
        return self._secrets

    def _make_keys(self) -> None:
        if self._security is not None:
            self._secrets_directory = tempfile.mkdtemp(prefix="tidelog-keys-")
            self._secrets = SecretFiles(self._security, self._secrets_directory)

    def _drop_keys(self) -> None:
        if self._secrets_directory is not None:
            shutil.rmtree(self._secrets_directory, ignore_errors=True)
            self._secrets_directory = self._secrets = None
