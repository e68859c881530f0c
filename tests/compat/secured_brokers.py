"""A broker with a listener for each way to secure one, Tidelog or Apache Kafka, set up alike.

Everybody on the listeners without a login, and alice, may do everything. bob may do nothing, carol
may write and read every topic but join no group. Certificates and tokens are made when it starts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec

from bench.peers.kafka import ApacheKafka
from bench.peers.peer import Peer
from bench.peers.process import free_port
from bench.peers.tidelog import TidelogBroker
from tidelog.testing.certificates import Authority

PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret", "carol": "carol-secret"}
PROTOCOLS = {
    "OPEN": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "OTHER_NAME": "SSL",
    "EXPIRED": "SSL",
    "LOGIN": "SASL_SSL",
    # By PLAIN alone.
    "PLAIN_LOGIN": "SASL_SSL",
}
_MODULES = "org.apache.kafka.common.security"
_ISSUER, _AUDIENCE = "https://issuer.example", "records"
_MECHANISMS = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
_TIMEOUT_S = 30.0


class _Kafka(ApacheKafka):
    """It reads the keys of tokens from a file only where the command line allows that file."""

    def command(self) -> list[str]:
        java, *rest = super().command()
        allowed = self.settings["sasl.oauthbearer.jwks.endpoint.url"]
        return [java, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}", *rest]

    def wait_until_serving(self, timeout_s: float = 180.0) -> None:
        super().wait_until_serving(timeout_s)


class _Tidelog(TidelogBroker):
    """Its settings hold passwords, so they are in a file."""

    def command(self) -> list[str]:
        path = self.data_dir / "broker.properties"
        path.touch(0o600)
        path.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        return [
            *(sys.executable, "-m", "tidelog", "broker", "--config", str(path)),
            *("--data-dir", str(self.log_dir)),
        ]


@dataclass(frozen=True)
class SecuredBroker:
    """Where its listeners are, and what clients show there."""

    servers: dict[str, str]
    directory: Path
    signer: ec.EllipticCurvePrivateKey
    admin: AdminClient

    def create_topic(self, topic: str) -> None:
        self.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(_TIMEOUT_S)

    def connection(self, listener: str, **shown: Any) -> dict[str, Any]:
        """What a driver is given; see drivers/python/secured.py."""
        nothing = dict.fromkeys(("certificate", "mechanism", "username", "password", "token"))
        return {
            **nothing,
            "servers": self.servers[listener],
            "protocol": PROTOCOLS[listener],
            "ca": self.file("ca"),
            **shown,
        }

    def login(
        self, mechanism: str, user: str, password: str | None = None, listener: str = "LOGIN"
    ) -> dict[str, Any]:
        word = PASSWORDS[user] if password is None else password
        return self.connection(listener, mechanism=mechanism, username=user, password=word)

    def file(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")

    def token(self, user: str, *, lifetime_s: int = 3600, audience: str = _AUDIENCE) -> str:
        now = int(time.time())
        claims = {"sub": user, "iss": _ISSUER, "aud": audience, "scope": "records"}
        times = {"iat": now - 7200, "exp": now + lifetime_s}
        return jwt.encode(claims | times, self.signer, "ES256", headers={"kid": "signer"})


def _write_secrets(directory: Path) -> ec.EllipticCurvePrivateKey:
    authority = Authority()
    authority.write(directory / "ca.pem")
    Authority("CN=stranger").write(directory / "stranger.pem")
    authority.issue().write(directory / "broker.pem")
    authority.issue(hosts=["elsewhere.example"]).write(directory / "other_name.pem")
    authority.issue(expired=True).write(directory / "expired.pem")
    authority.issue("CN=alice").write(directory / "alice.pem")
    authority.issue("CN=alice", expired=True).write(directory / "alice_expired.pem")
    Authority("CN=stranger").issue("CN=alice").write(directory / "alice_stranger.pem")
    signer = ec.generate_private_key(ec.SECP256R1())
    key = jwt.algorithms.ECAlgorithm.to_jwk(signer.public_key(), as_dict=True)
    (directory / "jwks.json").write_text(json.dumps({"keys": [{**key, "kid": "signer"}]}))
    return signer


def _settings(directory: Path) -> dict[str, str]:
    """Those that both brokers take."""
    users = " ".join(f'user_{user}="{word}"' for user, word in PASSWORDS.items())
    login = "listener.name.login"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/",
        "listener.name.mutual.ssl.client.auth": "required",
        **{
            f"listener.name.{name}.ssl.keystore.{part}": value
            for name in ("other_name", "expired")
            for part, value in (("type", "PEM"), ("location", str(directory / f"{name}.pem")))
        },
        f"{login}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.plain_login.sasl.enabled.mechanisms": "PLAIN",
        **{
            f"{name}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {users};"
            for name in (login, "listener.name.plain_login")
        },
        "sasl.oauthbearer.expected.issuer": _ISSUER,
        "sasl.oauthbearer.expected.audience": _AUDIENCE,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
    }


def _listeners(ports: dict[str, int]) -> dict[str, str]:
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(
            f"{name}:{PROTOCOLS.get(name, 'PLAINTEXT')}" for name in ports
        ),
        "inter.broker.listener.name": "OPEN",
    }


def _tidelog(directory: Path, ports: dict[str, int]) -> Peer:
    settings = _settings(directory) | _listeners(ports)
    settings["sasl.oauthbearer.jwks.file"] = str(directory / "jwks.json")
    return _Tidelog(directory / "broker", settings, port=ports["OPEN"])


def _kafka(directory: Path, ports: dict[str, int]) -> Peer:
    controller = free_port()
    settings = _settings(directory) | _listeners(ports | {"CONTROLLER": controller})
    settings["advertised.listeners"] = _listeners(ports)["listeners"]
    settings["controller.quorum.voters"] = f"1@127.0.0.1:{controller}"
    # The first group waits until they are all there.
    settings["offsets.topic.num.partitions"] = "1"
    settings["sasl.oauthbearer.jwks.endpoint.url"] = f"file://{directory / 'jwks.json'}"
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        name = f"listener.name.login.{mechanism}.sasl.jaas.config"
        settings[name] = f"{_MODULES}.scram.ScramLoginModule required;"
    oauth = "listener.name.login.oauthbearer"
    settings[f"{oauth}.sasl.jaas.config"] = (
        f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
    )
    settings[f"{oauth}.sasl.server.callback.handler.class"] = (
        f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    )
    return _Kafka(directory / "broker", settings, port=ports["OPEN"])


@contextmanager
def secured_broker(directory: Path, *, kafka: bool) -> Iterator[SecuredBroker]:
    signer = _write_secrets(directory)
    ports = {name: free_port() for name in PROTOCOLS}
    servers = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    with (_kafka if kafka else _tidelog)(directory, ports):
        admin = AdminClient({"bootstrap.servers": servers["OPEN"], "log_level": 0})
        _set_up(admin)
        yield SecuredBroker(servers, directory, signer, admin)


def _set_up(admin: AdminClient) -> None:
    # One request may not alter two credentials of a user.
    for mechanism in _MECHANISMS:
        made = [
            UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4096), word.encode(), os.urandom(16)
            )
            for user, word in PASSWORDS.items()
        ]
        for done in admin.alter_user_scram_credentials(made).values():
            done.result(_TIMEOUT_S)
    rules = [
        AclBinding(
            *(ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, "User:carol", "*"),
            *(operation, AclPermissionType.ALLOW),
        )
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    for done in admin.create_acls(rules).values():
        done.result(_TIMEOUT_S)
