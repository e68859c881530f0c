"""Sessions with a real ZooKeeper ensemble: out of touch, lost, hung, refused."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kazoo.retry import ForceRetryError

from tests.unit.store.test_conformance import WAIT_S, until
from tidelog.config.store_settings import CHROOT_LENGTH_MAX
from tidelog.errors import StorageError
from tidelog.host.clock import SystemClock
from tidelog.host.offload import ThreadOffload
from tidelog.store.ensemble import Ensemble
from tidelog.store.port import (
    TRANSACTION_BYTES_MAX,
    ConnectionLoss,
    Create,
    Delete,
    SessionExpired,
    SessionState,
    Set,
    StoreUnreachable,
    WatchEvent,
    transaction_bytes,
)
from tidelog.store.zookeeper import ZooKeeperStore, connect
from tidelog.testing.zookeeper import ZooKeeper

pytestmark = pytest.mark.spark

SESSION_S = 2.0


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    with ZooKeeper() as running:
        yield running


@pytest.fixture
def address(zookeeper: ZooKeeper) -> Ensemble:
    return Ensemble(zookeeper.hosts, f"/{uuid.uuid4()}", session_s=SESSION_S)


@asynccontextmanager
async def session(address: Ensemble) -> AsyncIterator[ZooKeeperStore]:
    store = await connect(address, SystemClock(), ThreadOffload("zookeeper", 1))
    try:
        yield store
    finally:
        await store.close()


def test_losing_every_node_in_turn_suspends_and_resumes_the_same_session() -> None:
    async def run(zookeeper: ZooKeeper) -> None:
        # Longer than it takes to start a node on a busy machine.
        async with session(Ensemble(zookeeper.hosts, session_s=30.0)) as store:
            await store.multi([Create("/mine", b"", ephemeral=True)])
            before = store.session
            states: list[SessionState] = []
            events: list[WatchEvent] = []
            store.watch_session(states.append)
            store.watch("/mine", events.append)
            await store.sync()
            for node in range(3):
                zookeeper.kill_node(node)
                zookeeper.start_node(node)
                await asyncio.to_thread(zookeeper.wait_serving)
            await until(lambda: states[-2:] == [SessionState.SUSPENDED, SessionState.CONNECTED])
            assert store.session == before
            assert await store.children("/") == ["mine"]
            # What happened meanwhile was told to nobody, so every watch says: look again.
            assert events

    with ZooKeeper(nodes=3) as zookeeper:
        asyncio.run(run(zookeeper))


def test_without_a_quorum_a_call_fails_at_once_and_the_session_survives_it(
    zookeeper: ZooKeeper, address: Ensemble
) -> None:
    async def run() -> None:
        async with session(address) as store:
            await store.multi([Create("/mine", b"", ephemeral=True), Create("/other", b"")])
            states: list[SessionState] = []
            store.watch_session(states.append)
            zookeeper.pause_node(0)
            try:
                await until(lambda: SessionState.SUSPENDED in states)
                with pytest.raises(ConnectionLoss):
                    await store.multi([Set("/other", b"late")])
            finally:
                zookeeper.resume_node(0)
            await until(lambda: store.session_state is not SessionState.SUSPENDED)
            if store.session_state is SessionState.CONNECTED:
                node = await store.read("/other")
                # Nothing was queued and sent later.
                assert node is not None and node.value == b""

    asyncio.run(run())


def test_a_session_with_a_zookeeper_that_hangs_is_closed_without_its_answer(
    zookeeper: ZooKeeper, address: Ensemble
) -> None:
    """kazoo waits for at least ten seconds."""

    async def run() -> None:
        store = await connect(address, SystemClock(), ThreadOffload("zookeeper", 1))
        zookeeper.pause_node(0)
        try:
            async with asyncio.timeout(8):
                await store.close()
        finally:
            zookeeper.resume_node(0)
        assert store.session_state is SessionState.LOST

    asyncio.run(run())


def test_a_zookeeper_that_was_away_for_long_is_tried_every_second(address: Ensemble) -> None:
    """kazoo would wait for as long again as it was away."""

    async def run() -> None:
        async with session(address) as store:
            retry = store._client._conn_retry.copy()
            delays: list[float] = []
            retry.sleep_func = delays.append

            def refused() -> None:
                if len(delays) < 200:
                    raise ForceRetryError("nobody there")

            retry(refused)
            assert max(delays) <= 1.0

    asyncio.run(run())


def test_a_session_that_expired_is_told_and_no_new_one_begins(
    zookeeper: ZooKeeper, address: Ensemble
) -> None:
    async def run() -> None:
        async with session(address) as store, session(address) as other:
            await store.multi([Create("/mine", b"", ephemeral=True)])
            states: list[SessionState] = []
            store.watch_session(states.append)
            # Whoever closes a session by its number and password ends it, as its expiry would.
            thief = _with_the_session_of(store, zookeeper)
            await asyncio.to_thread(thief)
            await until(lambda: SessionState.LOST in states)
            assert states[-1] is SessionState.LOST
            await other.sync()
            assert await other.children("/") == []
            with pytest.raises(SessionExpired):
                await store.multi([Create("/again", b"", ephemeral=True)])
            assert await other.children("/") == []

    asyncio.run(run())


def _with_the_session_of(store: ZooKeeperStore, zookeeper: ZooKeeper):  # type: ignore[no-untyped-def]
    from kazoo.client import KazooClient

    def end_it() -> None:
        client = KazooClient(zookeeper.hosts, client_id=store._client.client_id)
        client.start()
        client.stop()
        client.close()

    return end_it


def test_a_loop_that_hangs_loses_its_session(address: Ensemble) -> None:
    async def run() -> None:
        async with session(address) as store:
            await store.multi([Create("/mine", b"", ephemeral=True)])
            # The stall is the test: longer than a third of a session, shorter than all of it.
            time.sleep(SESSION_S * 0.6)
            await until(lambda: store.session_state is SessionState.LOST)
        async with session(address) as other:
            assert await other.children("/") == []

    asyncio.run(run())


def test_a_session_that_the_watchdog_is_ending_can_be_closed(address: Ensemble) -> None:
    """So it is with a broker that was paused: it crashed when the two met."""
    ended = threading.Event()

    async def run() -> None:
        async with session(address) as store:
            client = store._client
            stopped = client._connection.connection_stopped
            set_stopped = stopped.set

            def stop_late() -> None:
                ended.wait(WAIT_S)
                set_stopped()

            stopped.set = stop_late
            giving_up = asyncio.create_task(asyncio.to_thread(store._watchdog._give_up))
            await until(client._stopped.is_set)
            asyncio.get_running_loop().call_later(0.1, ended.set)
            await store.close()
            await giving_up

    asyncio.run(run())


def test_a_chroot_of_kafka_is_refused_by_name(zookeeper: ZooKeeper, address: Ensemble) -> None:
    async def run() -> None:
        async with session(address) as store:
            await store.multi([Create("/admin", b"")])
        with pytest.raises(StorageError, match="belongs to Apache Kafka"):
            async with session(address):
                pass

    asyncio.run(run())


def test_nodes_of_a_digest_user_are_closed_to_others(zookeeper: ZooKeeper) -> None:
    async def run() -> None:
        chroot = f"/{uuid.uuid4()}"
        owner = Ensemble(zookeeper.hosts, chroot, SESSION_S, digest="tidelog:secret")
        async with session(owner) as store:
            await store.multi([Create("/a", b"1")])
            stranger = Ensemble(zookeeper.hosts, chroot, SESSION_S)
            with pytest.raises(StorageError, match="refuses access"):
                async with session(stranger):
                    pass
            node = await store.read("/a")
            assert node is not None and node.value == b"1"

    asyncio.run(run())


def _anonymous(zookeeper: ZooKeeper, chroot: str) -> list[str]:
    """What somebody without a password can read of a chroot, by path."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import NoAuthError

    client = KazooClient(zookeeper.hosts)
    client.start()
    seen = []

    def look(path: str) -> None:
        with contextlib.suppress(NoAuthError):
            client.get(path)
            seen.append(path)
        with contextlib.suppress(NoAuthError):
            for name in client.get_children(path):
                look(f"{path}/{name}")

    look(chroot)
    client.stop()
    client.close()
    return seen


@pytest.mark.parametrize("exists", ["no", "empty", "with nodes"])
def test_an_anonymous_client_sees_nothing_below_the_chroot_of_a_digest_user(
    zookeeper: ZooKeeper, exists: str
) -> None:
    """Whoever made the chroot, and whatever was written there before there was a password."""
    chroot = f"/{uuid.uuid4()}/tidelog"

    async def run() -> None:
        if exists != "no":
            async with session(Ensemble(zookeeper.hosts, chroot, SESSION_S)) as store:
                if exists == "with nodes":
                    await store.multi([Create("/cluster", b""), Create("/cluster/key", b"k")])
        owner = Ensemble(zookeeper.hosts, chroot, SESSION_S, digest="tidelog:secret")
        async with session(owner) as store:
            await store.multi([Create("/mine", b"1"), Create("/there", b"", ephemeral=True)])
            assert await asyncio.to_thread(_anonymous, zookeeper, chroot) == []
        async with session(owner) as store:
            names = await store.children("/")
            assert names == ["mine"] if exists != "with nodes" else ["cluster", "mine"]
        wrong = Ensemble(zookeeper.hosts, chroot, SESSION_S, digest="tidelog:guessed")
        with pytest.raises(StorageError, match=r"refuses access.* set zookeeper\.digest"):
            async with session(wrong):
                pass

    asyncio.run(run())


# kazoo does not close the socket of a refused handshake, it drops it.
@pytest.mark.filterwarnings("ignore:unclosed <ssl:ResourceWarning")
def test_tls_needs_a_trusted_certificate_that_names_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What it logs would be kept for the report of the test, the socket with it.
    monkeypatch.setattr(logging.getLogger("kazoo.client"), "disabled", True)

    async def refusal(**settings: Any) -> str:
        """What is said once the server has got as far as showing its certificate."""
        async with asyncio.timeout(2 * WAIT_S):
            while True:
                with pytest.raises(StoreUnreachable) as refused:
                    async with session(
                        Ensemble(session_s=10.0, connect_s=1.0, tls=True, **settings)
                    ):
                        pass
                if "SSL" in str(refused.value):
                    return str(refused.value)

    async def run(zookeeper: ZooKeeper) -> None:
        hosts, trusted = zookeeper.tls_hosts, zookeeper.certificate
        async with session(Ensemble(hosts, session_s=10.0, tls=True, tls_ca=trusted)) as store:
            await store.multi([Create("/a", b"1")])
            assert await store.children("/") == ["a"]
        elsewhere = hosts.replace("localhost", "127.0.0.1")
        words = await refusal(hosts=elsewhere, tls_ca=trusted)
        assert "not valid for '127.0.0.1'" in words and "check the zookeeper.ssl settings" in words
        assert "certificate verify failed" in await refusal(hosts=hosts)
        any_name = Ensemble(
            elsewhere, session_s=10.0, tls=True, tls_ca=trusted, tls_check_host=False
        )
        async with session(any_name) as store:
            assert await store.children("/") == ["a"]

    with ZooKeeper(tls=True) as zookeeper:
        asyncio.run(run(zookeeper))


def test_trap_10_no_transaction_within_the_bound_is_too_large_for_zookeeper(
    zookeeper: ZooKeeper,
) -> None:
    """The worst one: small operations, each with the longest chroot and an access list."""

    async def run() -> None:
        chroot = f"/{uuid.uuid4()}".ljust(CHROOT_LENGTH_MAX, "c")
        owner = Ensemble(zookeeper.hosts, chroot, 20.0, digest=f"{'u' * 40}:secret")
        async with session(owner) as store:
            size = transaction_bytes([Create("/00000", b"")])
            creates = [
                Create(f"/{number:05d}", b"") for number in range(TRANSACTION_BYTES_MAX // size)
            ]
            await store.multi(creates)
            assert len(await store.children("/")) == len(creates)
            await store.multi([Delete(each.path) for each in creates])

    asyncio.run(run())


def test_a_session_of_another_length_than_asked_for_is_refused(zookeeper: ZooKeeper) -> None:
    async def run() -> None:
        with pytest.raises(StorageError, match=r"sessions of 60\.0 s.* set it to 60000, or"):
            async with session(Ensemble(zookeeper.hosts, session_s=90.0)):
                pass

    asyncio.run(run())


def test_an_ensemble_out_of_reach_is_named() -> None:
    async def run() -> None:
        nobody = Ensemble("127.0.0.1:1", connect_s=0.2)
        with pytest.raises(StorageError, match=r"ZooKeeper at 127\.0\.0\.1:1 cannot be reached"):
            async with session(nobody):
                pass

    asyncio.run(run())


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_server_that_hangs_suspends_the_session_within_a_third_of_it(
    zookeeper: ZooKeeper, is_busy: bool
) -> None:
    """kazoo alone notices after two thirds, and never while it is given work."""
    session_s = 6.0

    async def run() -> None:
        address = Ensemble(zookeeper.hosts, f"/{uuid.uuid4()}", session_s=session_s)
        async with session(address) as store:
            suspended = asyncio.Event()
            silent_s: list[float] = []

            def changed(state: SessionState) -> None:
                silent_s.append(store.silent_s)
                suspended.set()

            store.watch_session(changed)
            zookeeper.pause_node(0)
            asked = []
            try:
                async with asyncio.timeout(WAIT_S):
                    while not suspended.is_set():
                        if is_busy:
                            asked.append(asyncio.ensure_future(store.sync()))
                        await asyncio.sleep(0.1)
                # What a broker goes by: the store was heard of so long ago, and no longer.
                assert session_s / 3 < silent_s[0] < session_s * 2 / 3
            finally:
                zookeeper.resume_node(0)
                await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(run())
