"""Apache Kafka with a listener for each way to secure one, and users for each mechanism."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.kafka import ApacheKafka, run_tool
from bench.peers.process import free_port
from tidelog.testing.certificates import Authority

PASSWORD = "alice-secret"
_LISTENERS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULES = "org.apache.kafka.common.security"


@dataclass
class SecuredKafka:
    """Where each listener is, by its security protocol."""

    servers: dict[str, str]
    authority: Authority
    trust: str
    directory: Path


def unsecured_token(subject: str, *, expired: bool = False) -> str:
    """A token that Kafka takes without a signature, for tests alone."""
    now = int(time.time())
    claims = {"sub": subject, "iat": now - 7200, "exp": now - 3600 if expired else now + 3600}
    parts = (json.dumps(each).encode() for each in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in parts) + "."


@contextmanager
def secured_kafka(directory: Path) -> Iterator[SecuredKafka]:
    authority = Authority()
    trust = authority.write(directory / "ca.pem")
    key = authority.issue().write(directory / "kafka.pem")
    ports = {name: free_port() for name in ("PLAINTEXT", *_LISTENERS, "CONTROLLER")}
    places = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    settings = {
        "listeners": ",".join(places),
        "advertised.listeners": ",".join(places[:-1]),
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "listener.security.protocol.map": ",".join(
            f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in ports
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trust,
        "listener.name.ssl.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    }
    oauth = f"{_MODULES}.oauthbearer.internals.unsecured"
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        settings |= {
            f"{prefix}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required"
            f' user_alice="{PASSWORD}";',
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule"
            " required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule"
            " required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer"
            '.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="kafka";',
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{oauth}"
            ".OAuthBearerUnsecuredValidatorCallbackHandler",
            f"{prefix}.oauthbearer.connections.max.reauth.ms": "2000",
        }
    with ApacheKafka(directory / "kafka", settings, port=ports["PLAINTEXT"]) as kafka:
        # One request may not alter two credentials of a user.
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            done = run_tool(
                "kafka.admin.ConfigCommand",
                "--bootstrap-server", kafka.bootstrap_servers, "--alter",
                "--entity-type", "users", "--entity-name", "alice",
                "--add-config", f"{mechanism}=[iterations=8192,password={PASSWORD}]",
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
        servers = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        yield SecuredKafka(servers, authority, trust, directory)
