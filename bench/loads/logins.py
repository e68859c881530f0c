"""Log-ins over bare sockets: SCRAM by the thousand, and PLAIN for loads that need a principal."""

from __future__ import annotations

import functools
import time

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.measure import Stopwatch
from bench.peers.secured import PASSWORD, SCRAM, USER
from bench.wire import (
    Connection,
    authenticate_frame,
    authenticate_token,
    handshake_error,
    handshake_frame,
    metadata_error,
    metadata_frame,
)

ITERATIONS = 4096


def scram(
    port: int, pid: int, topic: str, open_port: int, at_once: int, duration_s: float
) -> dict[str, float]:
    """Connect, log in by SCRAM-SHA-256, and leave, so many at once, again and again.

    The password is salted once, as a client that remembers it does: what is measured is the broker.
    """
    from tidelog.security.scram import SCRAM_SHA_256

    create_user(f"127.0.0.1:{open_port}")
    salted = functools.cache(
        lambda salt, iterations: SCRAM_SHA_256.salt_password(PASSWORD.encode(), salt, iterations)
    )
    first = _log_in_together(port, 1, salted, 0)[0]
    assert metadata_error(first.ask(metadata_frame(topic))) == 0
    first.close()
    stopwatch, count = Stopwatch(pid), 0
    deadline = time.perf_counter() + duration_s
    while time.perf_counter() < deadline:
        for each in _log_in_together(port, at_once, salted, count + 1):
            each.close()
        count += at_once
    return stopwatch.result(logins=count)


def create_user(bootstrap_servers: str) -> None:
    """Give the user its credential, with as many iterations at every broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(30)
    time.sleep(0.5)  # until it is in every broker's image


def _log_in_together(
    port: int, count: int, salted: functools._lru_cache_wrapper[bytes], number: int
) -> list[Connection]:
    """So many connections take each step of a log-in together, and check the broker's proof."""
    from tidelog.security.scram import SCRAM_SHA_256, ScramClient

    clients = [
        ScramClient(SCRAM_SHA_256, USER, salted, f"nonce{number + each}") for each in range(count)
    ]
    connections = [Connection(port) for _ in clients]
    for answer in _ask_all(connections, [handshake_frame(SCRAM)] * count):
        assert handshake_error(answer) == 0, "the mechanism is not served"
    frames = [authenticate_frame(each.first()) for each in clients]
    challenges = map(authenticate_token, _ask_all(connections, frames))
    pairs = zip(clients, challenges, strict=True)
    frames = [authenticate_frame(client.final(challenge)) for client, challenge in pairs]
    for client, answer in zip(clients, _ask_all(connections, frames), strict=True):
        client.finish(authenticate_token(answer))
    return connections


def _ask_all(connections: list[Connection], frames: list[bytes]) -> list[bytes]:
    for connection, frame in zip(connections, frames, strict=True):
        connection.socket.sendall(frame)
    return [connection.answer() for connection in connections]


def plain(connection: Connection) -> None:
    """Log a connection in by PLAIN."""
    assert handshake_error(connection.ask(handshake_frame("PLAIN"))) == 0
    token = f"\0{USER}\0{PASSWORD}".encode()
    authenticate_token(connection.ask(authenticate_frame(token)))
