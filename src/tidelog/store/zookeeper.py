"""The store of a cluster: the port on a ZooKeeper ensemble, by kazoo, which only this file knows.

Promises: those of the port. A `Store` is one session: when ZooKeeper ends it the object is of no
more use, and nothing begins another session behind its owner's back. Nothing is sent late: a call
while the connection is down fails at once with `ConnectionLoss`, where kazoo would queue it.

kazoo calls back on threads of its own; every outcome is handed to the event loop and judged there.
Its pings come from a thread too, so a broker whose loop hangs would keep its session for ever: the
watchdog ends the session when the loop has not moved for a third of it. A server that hangs, kazoo
would notice late, and never while it is given work, which it counts as pings: the heartbeat does.

The revision of a transaction is its zxid. ZooKeeper tells it with the node that a `Set` changed; of
a transaction without one it is read from a node that was created.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.protocol.states import KazooState, ZnodeStat
from kazoo.security import make_digest_acl

from tidelog.errors import StorageError
from tidelog.host.clock import Clock
from tidelog.host.offload import Offload
from tidelog.store.ensemble import Ensemble
from tidelog.store.heartbeat import Heartbeat
from tidelog.store.kazoo_lines import KazooLines
from tidelog.store.levels import walk
from tidelog.store.loop_watchdog import LoopWatchdog
from tidelog.store.port import (
    Cancel,
    ConnectionLoss,
    Create,
    Delete,
    Operation,
    SessionCallback,
    SessionExpired,
    SessionState,
    Set,
    Stored,
    StoreError,
    StoreUnreachable,
    WatchCallback,
    WatchEvent,
    check_transaction,
)
from tidelog.store.watches import SessionWatches
from tidelog.store.zookeeper_results import raise_refused, stored

logger = logging.getLogger(__name__)

# Nodes that Kafka itself keeps at its root: a chroot that holds one of them is Kafka's.
_KAFKAS_NODES: Final = frozenset({"admin", "isr_change_notification", "latest_producer_id_block"})
# kazoo's own waits between two attempts grow for as long as ZooKeeper is away.
_RETRY: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
# How often a thread that waits for a connection looks whether anybody still wants it.
_LOOK_S: Final = 0.1
# How long ZooKeeper may take to end a session that is over here.
_FAREWELL_S: Final = 0.5


async def connect(ensemble: Ensemble, clock: Clock, offload: Offload) -> ZooKeeperStore:
    """A new session; StorageError, with what to do, where there is none to be had.

    `offload` runs what blocks in kazoo, which is connecting and closing; the session owns it.
    """
    store = ZooKeeperStore(ensemble, clock, offload)
    opening = offload.run(store.open)
    try:
        await asyncio.shield(opening)
    except asyncio.CancelledError:
        store.give_up()
        await asyncio.wait([opening])
        opening.exception()
        offload.close()
        raise
    except (AuthFailedError, NoAuthError) as error:
        offload.close()
        raise StorageError(
            f"ZooKeeper at {ensemble.hosts} refuses access to {ensemble.chroot};"
            " set zookeeper.digest to the user and password that own it"
        ) from error
    except (KazooException, OSError, store.timeout_error) as error:
        offload.close()
        check = "the zookeeper.ssl settings" if "SSL" in str(error) else "that it runs"
        raise StoreUnreachable(
            f"ZooKeeper at {ensemble.hosts} cannot be reached: {error}; check {check}"
        ) from error
    except BaseException:
        offload.close()
        raise
    store.attach()
    return store


class ZooKeeperStore:
    """One session with an ensemble, below its chroot."""

    def __init__(self, ensemble: Ensemble, clock: Clock, offload: Offload) -> None:
        self._ensemble = ensemble
        self._offload = offload
        self._loop = asyncio.get_running_loop()
        self._acl: list[Any] | None = None
        if ensemble.digest is not None:
            user, _, password = ensemble.digest.partition(":")
            self._acl = [make_digest_acl(user, password, all=True)]
        self._client = KazooClient(
            hosts=ensemble.hosts + ensemble.chroot,
            timeout=ensemble.session_s,
            connection_retry=_RETRY,
            default_acl=self._acl,
            auth_data=[("digest", ensemble.digest)] if ensemble.digest else None,
            use_ssl=ensemble.tls,
            ca=ensemble.tls_ca,
            certfile=ensemble.tls_certificate,
            keyfile=ensemble.tls_certificate,
            keyfile_password=ensemble.tls_key_password,
            verify_certs=ensemble.tls,
            check_hostname=ensemble.tls and ensemble.tls_check_host,
            logger=KazooLines(clock),
        )
        self.timeout_error: type[Exception] = self._client.handler.timeout_exception
        self._watchdog = LoopWatchdog(clock, ensemble.session_s / 3, self._end_session)
        self._heartbeat = Heartbeat(clock, ensemble.session_s, self._ask, self._hang_up)
        # The watchdog may be ending the session on its thread when the broker closes it: kazoo
        # lets the second one pass at once, and then refuses to be closed.
        self._ending = threading.Lock()
        self._session_ms = 0.0
        # Why the last attempt to connect failed.
        self._fault = "no answer in time"
        self._look_at_connecting()
        self.session_state = SessionState.CONNECTED
        self.session = 0
        self._watches: list[_Watch] = []
        self._session_watches = SessionWatches()
        self._closed = False
        self._given_up = False

    # -- beginning and end ------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, and make the chroot where it is missing. Blocks."""
        chroot = self._client.chroot
        # The root of the ensemble, for as long as the chroot does not exist.
        self._client.chroot = ""
        try:
            self._wait_connected(self._client.start_async())
            self._client.ensure_path(chroot)
            found = _KAFKAS_NODES.intersection(self._client.get_children(chroot))
            if self._acl is not None and not found:
                self._close_to_others(chroot)
        except BaseException:
            self._stop()
            raise
        fault = self._ensemble.session_fault(self._session_ms)
        if found:
            fault = (
                f"{chroot} in ZooKeeper belongs to Apache Kafka (it holds {sorted(found)[0]});"
                " choose another chroot"
            )
        if fault is not None:
            self._stop()
            raise StorageError(fault)
        self._client.chroot = chroot
        self.session = self._client.client_id[0]

    def _close_to_others(self, chroot: str) -> None:
        """Give nodes that were made without a digest to its user; the chroot last, as a mark."""
        if self._client.get_acls(chroot)[0] == self._acl:
            return
        logger.warning("closing the nodes below %s in ZooKeeper to all but one user", chroot)
        below = [chroot]
        while below:
            at = below.pop()
            with suppress(NoNodeError):
                if at != chroot:
                    self._client.set_acls(at, self._acl)
                below += [f"{at}/{name}" for name in self._client.get_children(at)]
        self._client.set_acls(chroot, self._acl)

    def _look_at_connecting(self) -> None:
        """Have kazoo tell what it keeps to itself: how long ZooKeeper lets a session last, and why
        an attempt to connect failed."""
        handler = self._client._connection
        connect = handler._connect

        def noting(*args: Any) -> tuple[float, float]:
            try:
                read_timeout, connect_timeout = connect(*args)
            except Exception as error:
                self._fault = str(error)
                raise
            self._session_ms = read_timeout * 3 / 2
            return read_timeout, connect_timeout

        handler._connect = noting

    def _wait_connected(self, connected: Any) -> None:
        slices = int(self._ensemble.connect_s / _LOOK_S) + 1
        for _ in range(slices):
            if self._given_up or connected.wait(_LOOK_S):
                break
        if not self._client.connected:
            raise self.timeout_error(self._fault)

    def give_up(self) -> None:
        """Have `open` return soon: nobody waits for it any more."""
        self._given_up = True

    def attach(self) -> None:
        """Begin to hear of the session, on the loop."""
        self._client.add_listener(self._told_state)
        self._heartbeat.start()
        self._watchdog.start(self._loop, self._client.handler.spawn)
        self._state_changed(self._client.state)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._client.remove_listener(self._told_state)
        self._lose()
        await self._offload.run(self._stop)
        self._offload.close()

    def _end_session(self) -> None:
        """Returns when it is over, whoever began to end it; soon, though ZooKeeper hangs."""
        ended = threading.Event()

        def hang_up() -> None:
            # kazoo waits for an answer to its farewell, and for that of a server that it tries.
            while not ended.wait(_FAREWELL_S):
                self._cut_connection()

        with self._ending:
            self._client.handler.spawn(hang_up)
            try:
                self._client.stop()
            finally:
                ended.set()

    def _stop(self) -> None:
        try:
            self._end_session()
            self._client.close()
        except KazooException as error:
            logger.warning("ZooKeeper client not closed reason=%s", error)

    @property
    def silent_s(self) -> float:
        return self._heartbeat.silent_s

    # -- reading ----------------------------------------------------------------------------------

    async def sync(self) -> None:
        await self._call(self._client.sync_async, "/")

    async def read(self, path: str) -> Stored | None:
        try:
            value, stat = await self._call(self._client.get_async, path)
        except NoNodeError:
            return None
        return stored(value, stat)

    async def children(self, path: str) -> list[str]:
        try:
            return sorted(await self._call(self._client.get_children_async, path))
        except NoNodeError:
            return []

    async def tree(self, path: str) -> Mapping[str, Stored]:
        found: dict[str, Stored] = {}
        await walk(path, lambda at: self._look(at, found))
        return dict(sorted(found.items()))

    async def _look(self, at: str, found: dict[str, Stored]) -> list[str]:
        """Read one node into `found`; the paths of its children, asked for where it has any."""
        if at != "/":
            try:
                value, stat = await self._call(self._client.get_async, at)
            except NoNodeError:
                return []
            found[at] = stored(value, stat)
            if not stat.numChildren:
                return []
        prefix = at.rstrip("/") + "/"
        return [prefix + name for name in await self.children(at)]

    # -- writing ----------------------------------------------------------------------------------

    async def multi(self, operations: Sequence[Operation]) -> int:
        operations = tuple(operations)
        check_transaction(operations)
        if not operations:
            return self._newest_revision()
        transaction = self._client.transaction()
        for each in operations:
            if isinstance(each, Create):
                transaction.create(each.path, each.value, ephemeral=each.ephemeral)
            elif isinstance(each, Set):
                transaction.set_data(each.path, each.value, each.version)
            elif isinstance(each, Delete):
                transaction.delete(each.path, each.version)
            else:
                transaction.check(each.path, each.version)
        results: list[Any] = await self._call(transaction.commit_async)
        raise_refused(operations, results)
        for result in results:
            if isinstance(result, ZnodeStat):
                return int(result.mzxid)
        return await self._revision_of(operations)

    async def _revision_of(self, operations: Sequence[Operation]) -> int:
        for each in operations:
            if isinstance(each, Create):
                node = await self.read(each.path)
                if node is not None:
                    return node.created
        return self._newest_revision()

    def _newest_revision(self) -> int:
        return int(self._client.last_zxid)

    # -- watching ---------------------------------------------------------------------------------

    def watch(self, path: str, callback: WatchCallback) -> Cancel:
        watch = _Watch(self, path, callback)
        self._watches.append(watch)
        self.arm(watch)

        def cancel() -> None:
            if watch in self._watches:
                self._watches.remove(watch)

        return cancel

    def watch_session(self, callback: SessionCallback) -> Cancel:
        return self._session_watches.add(callback)

    def arm(self, watch: _Watch) -> None:
        """Ask ZooKeeper to tell of the next change of a node and of its children."""
        if self.session_state is not SessionState.CONNECTED:
            return
        # A node that is not there yet can be watched for, but has no children to watch.
        self._client.exists_async(watch.path, watch=watch.fired)
        self._client.get_children_async(watch.path, watch=watch.fired)

    def tell(self, watch: _Watch) -> None:
        """On the loop: something changed."""
        if watch not in self._watches or self.session_state is SessionState.LOST:
            return
        self.arm(watch)
        watch.callback(WatchEvent(watch.path, self._newest_revision()))

    def to_loop(self, function: Callable[..., object], *args: object) -> None:
        """Have the loop call something; from any thread, also while the loop is closing."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            logger.debug("an event of ZooKeeper came after the loop had closed")

    # -- the session ------------------------------------------------------------------------------

    def _told_state(self, state: str) -> None:
        self.to_loop(self._state_changed, state)

    def _state_changed(self, state: str) -> None:
        if self.session_state is SessionState.LOST:
            return
        if state == KazooState.LOST or self._is_another_session(state):
            logger.error("the session with ZooKeeper was lost session=%x", self.session)
            self._lose()
            # kazoo would go on with a new session, whose owner nobody is.
            self._offload.run(self._stop)
        elif state == KazooState.SUSPENDED and self.session_state is SessionState.CONNECTED:
            logger.warning("out of touch with ZooKeeper session=%x", self.session)
            self._move_to(SessionState.SUSPENDED)
        elif state == KazooState.CONNECTED and self.session_state is SessionState.SUSPENDED:
            logger.info("in touch with ZooKeeper again session=%x", self.session)
            self._heartbeat.answered(self._heartbeat.now())
            self._move_to(SessionState.CONNECTED)
            # Watches end with a connection, and what happened meanwhile was told to nobody.
            for watch in tuple(self._watches):
                self.tell(watch)

    def _ask(self) -> bool:
        """Have ZooKeeper show that it is there; False while there is no connection."""
        if self.session_state is not SessionState.CONNECTED:
            return False
        asked_at = self._heartbeat.now()

        def done(result: Any) -> None:
            if result.exception is None:
                self.to_loop(self._heartbeat.answered, asked_at)

        self._client.exists_async("/").rawlink(done)
        return True

    def _hang_up(self) -> None:
        """Have kazoo try another server."""
        logger.warning("ZooKeeper is silent, its connection is closed session=%x", self.session)
        self._cut_connection()

    def _cut_connection(self) -> None:
        with suppress(OSError, AttributeError):
            self._client._connection._socket.shutdown(socket.SHUT_RDWR)

    def _is_another_session(self, state: str) -> bool:
        identity = self._client.client_id
        return bool(state == KazooState.CONNECTED and identity and identity[0] != self.session)

    def _lose(self) -> None:
        self._watchdog.stop()
        self._heartbeat.stop()
        if self.session_state is not SessionState.LOST:
            self._watches.clear()
            self._move_to(SessionState.LOST)

    def _move_to(self, state: SessionState) -> None:
        self.session_state = state
        self._session_watches.tell(state)

    async def _call(self, function: Callable[..., Any], *args: object) -> Any:
        if self.session_state is SessionState.LOST:
            raise SessionExpired("the session with ZooKeeper has ended")
        if self.session_state is SessionState.SUSPENDED:
            raise ConnectionLoss("out of touch with ZooKeeper")
        future: asyncio.Future[Any] = self._loop.create_future()
        asked_at = self._heartbeat.now()
        # kazoo calls this on one of its threads, or at once.
        function(*args).rawlink(lambda result: self.to_loop(_settle, future, result))
        try:
            answer = await future
        except NoNodeError:
            raise
        except SessionExpiredError as error:
            raise SessionExpired("the session with ZooKeeper has ended") from error
        except NoAuthError as error:
            raise StoreError(f"ZooKeeper refuses access below {self._client.chroot}") from error
        except (KazooException, OSError) as error:
            raise ConnectionLoss(f"no answer from ZooKeeper: {error!r}") from error
        self._heartbeat.answered(asked_at)
        return answer


class _Watch:
    """One watched path; ZooKeeper forgets a watch when it fires, so it is set again each time."""

    def __init__(self, store: ZooKeeperStore, path: str, callback: WatchCallback) -> None:
        self._store = store
        self.path = path
        self.callback = callback

    def fired(self, event: object) -> None:
        """On kazoo's thread."""
        self._store.to_loop(self._store.tell, self)


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)
