"""How clients come to a secured broker, and where they are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.compat.clients import CLIENTS, Client
from tests.compat.secured_brokers import SecuredBroker

Connection = dict[str, Any]
WRONG = "wrong-secret"
# kcat connects by librdkafka, as confluent-kafka does.
SECURED_CLIENTS = tuple(client for client in CLIENTS if client.name != "kcat")
# The cases of every run; the others are of the long tier.
_SAMPLE = ("scram_512", "scram_512_password", "write_forbidden")
# It waits for its time-out in place of an error.
_SLOW = {("kafka-python", "scram_512_password")}


@dataclass(frozen=True)
class SecuredCase:
    """A connection, and which step of it is refused: `produce`, `consume` or none."""

    told: str
    connection: Callable[[SecuredBroker], Connection]
    refused: str = ""


def _login(mechanism: str, user: str, password: str | None = None) -> Any:
    return lambda broker: broker.login(mechanism, user, password)


def _token(**claims: Any) -> Callable[[SecuredBroker], Connection]:
    def connection(broker: SecuredBroker) -> Connection:
        made = broker.token("alice", **claims)
        return broker.connection("LOGIN", mechanism="OAUTHBEARER", token=made)

    return connection


def _certificate(name: str) -> Callable[[SecuredBroker], Connection]:
    return lambda broker: broker.connection("MUTUAL", certificate=broker.file(name))


CASES: Mapping[str, SecuredCase] = {
    "tls": SecuredCase("TLS", lambda broker: broker.connection("TLS")),
    "mutual_tls": SecuredCase("mutual TLS: a certificate is the user", _certificate("alice")),
    "plain": SecuredCase("TLS and PLAIN", _login("PLAIN", "alice")),
    "scram_256": SecuredCase("TLS and SCRAM-SHA-256", _login("SCRAM-SHA-256", "alice")),
    "scram_512": SecuredCase("TLS and SCRAM-SHA-512", _login("SCRAM-SHA-512", "alice")),
    "oauthbearer": SecuredCase("TLS and OAUTHBEARER, a signed token", _token()),
    "plain_password": SecuredCase(
        "PLAIN, a wrong password: refused", _login("PLAIN", "alice", WRONG), "produce"
    ),
    "scram_256_password": SecuredCase(
        "SCRAM-SHA-256, a wrong password: refused",
        _login("SCRAM-SHA-256", "alice", WRONG),
        "produce",
    ),
    "scram_512_password": SecuredCase(
        "SCRAM-SHA-512, a wrong password: refused",
        _login("SCRAM-SHA-512", "alice", WRONG),
        "produce",
    ),
    "scram_unknown_user": SecuredCase(
        "SCRAM-SHA-512, an unknown user: refused",
        _login("SCRAM-SHA-512", "nobody", WRONG),
        "produce",
    ),
    "mechanism_not_offered": SecuredCase(
        "a mechanism that is not offered: refused",
        lambda broker: broker.login("SCRAM-SHA-512", "alice", listener="PLAIN_LOGIN"),
        "produce",
    ),
    "token_expired": SecuredCase(
        "OAUTHBEARER, an expired token: refused", _token(lifetime_s=-3600), "produce"
    ),
    "token_audience": SecuredCase(
        "OAUTHBEARER, a token for another audience: refused", _token(audience="other"), "produce"
    ),
    "broker_name": SecuredCase(
        "the broker's certificate is for another name: refused",
        lambda broker: broker.connection("OTHER_NAME"),
        "produce",
    ),
    "broker_expired": SecuredCase(
        "the broker's certificate has expired: refused",
        lambda broker: broker.connection("EXPIRED"),
        "produce",
    ),
    "broker_unknown": SecuredCase(
        "the broker's certificate is from an unknown authority: refused",
        lambda broker: broker.connection("TLS", ca=broker.file("stranger")),
        "produce",
    ),
    "certificate_missing": SecuredCase(
        "mutual TLS without a certificate: refused",
        lambda broker: broker.connection("MUTUAL"),
        "produce",
    ),
    "certificate_expired": SecuredCase(
        "mutual TLS, an expired certificate: refused", _certificate("alice_expired"), "produce"
    ),
    "certificate_unknown": SecuredCase(
        "mutual TLS, a certificate from an unknown authority: refused",
        _certificate("alice_stranger"),
        "produce",
    ),
    "write_forbidden": SecuredCase(
        "no permission to write: refused", _login("SCRAM-SHA-512", "bob"), "produce"
    ),
    "read_forbidden": SecuredCase(
        "no permission to read: refused", _login("SCRAM-SHA-512", "bob"), "consume"
    ),
    "group_forbidden": SecuredCase(
        "no permission to join a group: refused", _login("SCRAM-SHA-512", "carol"), "consume"
    ),
}


def is_sampled(client: Client, name: str) -> bool:
    """Whether a case is of every run."""
    return name in _SAMPLE and (client.name, name) not in _SLOW
