"""X33: somebody who reaches the ZooKeeper of a secured cluster, without its password."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError
from kazoo.security import make_acl

from tests.e2e.test_secure_listeners import round_trip
from tidelog.testing import Broker, Security, ZooKeeper

pytestmark = pytest.mark.spark

CHROOT = "/shared/tidelog"
DIGEST = "tidelog:digest-5ecret"


@contextmanager
def client(zookeeper: ZooKeeper, digest: str | None = None) -> Iterator[KazooClient]:
    found = KazooClient(zookeeper.hosts)
    found.start()
    try:
        if digest is not None:
            found.add_auth("digest", digest)
        yield found
    finally:
        found.stop()
        found.close()


def tree(owner: KazooClient, path: str = CHROOT) -> dict[str, tuple[bytes, int, int]]:
    """Every node with its value, its version, and the version of its access list."""
    value, stat = owner.get(path)
    found = {path: (value, stat.version, stat.aversion)}
    for name in owner.get_children(path):
        found |= tree(owner, f"{path}/{name}")
    return found


def attempts(stranger: KazooClient, path: str) -> dict[str, Callable[[], object]]:
    everybody = make_acl("world", "anyone", all=True)
    return {
        "read": lambda: stranger.get(path),
        "list": lambda: stranger.get_children(path),
        "see the access list": lambda: stranger.get_acls(path),
        "write": lambda: stranger.set(path, b"mine"),
        "create": lambda: stranger.create(f"{path}/mine", b""),
        "open": lambda: stranger.set_acls(path, [everybody]),
        "delete": lambda: stranger.delete(path),
    }


def try_everything(stranger: KazooClient, paths: list[str]) -> Counter[str]:
    """How often each thing was refused."""
    refused: Counter[str] = Counter()
    for path in paths:
        for what, attempt in attempts(stranger, path).items():
            # Of a deletion, ZooKeeper may look at the children first.
            with pytest.raises((NoAuthError, NotEmptyError)):
                attempt()
            refused[what] += 1
    return refused


def test_x33_a_stranger_can_neither_read_nor_change_a_node_of_a_secured_cluster() -> None:
    security = Security(protocol="SASL_PLAINTEXT", users={"alice": "alice-5ecret"})
    with ZooKeeper(nodes=1) as zookeeper:
        settings = {
            "store": f"zookeeper://{zookeeper.hosts}{CHROOT}",
            "zookeeper.digest": DIGEST,
            "offsets.topic.num.partitions": "1",
        }
        with (
            Broker(security=security, settings=settings) as broker,
            client(zookeeper, DIGEST) as owner,
        ):
            servers = {"bootstrap.servers": broker.bootstrap_servers}
            round_trip(broker.librdkafka_settings("alice") | servers, "before")
            before = tree(owner)
            assert any("alice" in path or b"alice" in each[0] for path, each in before.items())
            assert len(before) > 15
            for digest in (None, "tidelog:guessed", "other:digest-5ecret"):
                with client(zookeeper, digest) as stranger:
                    refused = try_everything(stranger, list(before))
                assert len(refused) == 7 and set(refused.values()) == {len(before)}
            assert tree(owner) == before
            round_trip(broker.librdkafka_settings("alice") | servers, "after")
