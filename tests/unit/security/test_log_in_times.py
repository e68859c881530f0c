"""Log-ins of users that exist and of users that do not: the same work, so nobody can time them."""

from __future__ import annotations

import hashlib
import hmac
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tidelog.security.broker_identity import KEY_BYTES, BrokerIdentity
from tidelog.security.plain import PlainServer
from tidelog.security.sasl import SaslError
from tidelog.security.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Credential,
    Mechanism,
    ScramClient,
    ScramServer,
    credential_of,
)
from tidelog.security.scram_users import ScramUsers

IDENTITY = BrokerIdentity(bytes(range(KEY_BYTES)))
MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512)
SALT = b"salt of 16 bytes"
TRIES = 50_000 if os.environ.get("TIDELOG_LONG") else 200


class CountedUsers(Mapping[tuple[str, str], Credential]):
    """Users that count how often somebody walks over all of them."""

    def __init__(self, users: dict[tuple[str, str], Credential]) -> None:
        self._users = users
        self.walks = 0

    def __getitem__(self, key: tuple[str, str]) -> Credential:
        return self._users[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.walks += 1
        return iter(self._users)

    def __len__(self) -> int:
        return len(self._users)


def stored(mechanism: Mechanism, count: int = 1) -> dict[tuple[str, str], Credential]:
    salted = mechanism.salt_password(b"s3cret", SALT, 4096)
    one = credential_of(mechanism, salted, SALT, 4096)
    return {(f"user-{n}", mechanism.name): one for n in range(count)}


def wrong_log_in(server: ScramServer, user: str) -> None:
    """A whole exchange with a password that nobody has; its salted form is known beforehand."""
    side = ScramClient(server.mechanism, user, lambda salt, iterations: b"wrong" * 8, "nonce")
    final = side.final(server.answer(side.first()))
    with pytest.raises(SaslError, match="the password is wrong"):
        server.answer(final)


def scram_server(mechanism: Mechanism, users: ScramUsers, held: Any) -> ScramServer:
    return ScramServer(mechanism, users.finder(mechanism, IDENTITY, held), "server-nonce")


def count_operations(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> Counter[str]:
    """What `work` does that takes time by the bytes that it is given: hashes and comparisons."""
    counted: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        real = getattr(module, name)

        def counting(*given: Any, **named: Any) -> Any:
            size = sum(len(each) for each in given if isinstance(each, bytes))
            counted[f"{name} of {-(-size // 64)} blocks"] += 1
            return real(*given, **named)

        patched.setattr(module, name, counting)

    with monkeypatch.context() as patched:
        for name in ("new", "sha256", "sha512", "pbkdf2_hmac"):
            count(hashlib, name)
        for name in ("digest", "compare_digest"):
            count(hmac, name)
        work()
    return counted


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: each.name)
def test_x10_scram_does_the_same_work_for_an_unknown_user(
    monkeypatch: pytest.MonkeyPatch, mechanism: Mechanism
) -> None:
    users, held = ScramUsers(), stored(mechanism)
    users.finder(mechanism, IDENTITY, held)
    done = [
        count_operations(
            monkeypatch,
            lambda name=name: wrong_log_in(scram_server(mechanism, users, held), name),  # type: ignore[misc]
        )
        for name in ("user-0", "user-1")
    ]
    assert done[0] == done[1]
    assert done[0].total() > 5


def test_x8_plain_does_the_same_work_for_an_unknown_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(user: str, password: bytes) -> None:
        with pytest.raises(SaslError):
            PlainServer({"alice": "s3cret" * 20}.get).answer(
                b"\0%b\0%b" % (user.encode(), password)
            )

    done = [
        count_operations(monkeypatch, lambda given=given: work(*given))  # type: ignore[misc]
        for given in (("alice", b"wrong"), ("carol", b"wrong"), ("alice", b"w" * 200))
    ]
    assert done[0] == done[1] == done[2]
    assert done[0].total() == 3


def test_an_unknown_user_does_not_cost_a_walk_over_all_users() -> None:
    mechanism, users = SCRAM_SHA_256, ScramUsers()
    held = CountedUsers(stored(mechanism, 2_000))
    for number in range(100):
        find = users.finder(mechanism, IDENTITY, held)
        assert find(f"nobody-{number}").iterations == 4096
        users.finder(mechanism, IDENTITY, {})
    assert held.walks == 1, "for as long as the users are the same"
    assert users.finder(mechanism, IDENTITY, stored(mechanism))("nobody").iterations == 4096


def test_x8_times_of_known_and_unknown_users_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Welch's t of the two; not judged, since other work on the machine is in both."""
    mechanism, users = SCRAM_SHA_256, ScramUsers()
    held = stored(mechanism, 1_000)
    times: dict[str, list[float]] = {"user-0": [], "user-x": []}
    for at in range(TRIES):
        # In turns, and each of them first as often as second.
        for name in ("user-0", "user-x") if at % 2 else ("user-x", "user-0"):
            began = time.perf_counter()
            wrong_log_in(scram_server(mechanism, users, held), name)
            times[name].append(time.perf_counter() - began)
    # The slowest tenth is what else the machine did.
    known, unknown = (sorted(each)[: TRIES * 9 // 10] for each in times.values())
    spread = statistics.variance(known) + statistics.variance(unknown)
    t = (statistics.mean(known) - statistics.mean(unknown)) / (spread / len(known)) ** 0.5
    with capsys.disabled():
        medians = ", ".join(f"{statistics.median(each) * 1e6:.2f} us" for each in (known, unknown))
        print(f"\n{TRIES} log-ins each: medians {medians} (known, unknown), t = {t:.2f}")
    assert len(times["user-0"]) == len(times["user-x"]) == TRIES
