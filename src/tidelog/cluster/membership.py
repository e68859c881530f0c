"""A broker's place in its cluster: its session with the store, its registration, the controller.

Within a session the broker stands for controller whenever there is none, and keeps its registration
once it was asked to register. When the session is lost, both are gone: the broker connects again,
registers in a new broker epoch, and stands again. Losing the office ends the `Controller` object
and nothing else. Where the store is the broker's own, `wait_failed` raises instead and the broker
stops.

`out_of_touch` says that the others may have given the broker up: two thirds of a session without a
sign of the store, no registration since the last session was lost, or one that its own metadata
does not show yet.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from tidelog.cluster import layout
from tidelog.cluster.controller import Controller, ControllerLimits, not_controller
from tidelog.cluster.image import BrokerRegistration, Endpoint
from tidelog.cluster.office import OfficeTaken, Owner, Place
from tidelog.cluster.planner import PlannerRules
from tidelog.cluster.registration import register_broker, wait_for_id
from tidelog.errors import KafkaError, StorageError
from tidelog.host.host import Host
from tidelog.host.line_rate import LineRate
from tidelog.store.port import SessionState, Store, StoreError, StoreUnreachable, WatchEvent

_log = logging.getLogger(__name__)

Connect = Callable[[], Awaitable[Store]]

_CONNECT_DELAY_S: Final = 0.25
_CONNECT_DELAY_MAX_S: Final = 3.0
_RETRY_S: Final = 0.5
# Candidates do not all try at the same moment.
_JITTER_MS: Final = 100
# A watch that was missed costs no more than this.
_LOOK_AGAIN_S: Final = 10.0


class MembershipOptions(NamedTuple):
    """What kind of store it is."""

    # A store that other brokers share, and that can be connected to again.
    is_shared: bool = True
    # How long the others wait before they give a silent broker up.
    session_timeout_s: float = 9.0
    may_found: bool = True


async def _note_nothing(broker_epoch: int) -> None:
    """Where nobody keeps what life it is."""


class Membership:
    """One per broker, from `start` to `close`."""

    def __init__(
        self,
        broker_id: int,
        connect: Connect,
        rules: PlannerRules,
        host: Host,
        options: MembershipOptions | None = None,
    ) -> None:
        self.broker_id = broker_id
        self._connect = connect
        self._rules = rules
        self._clock = host.clock
        self._offload = host.offload
        self._lines = LineRate(host.clock)
        self._options = options or MembershipOptions()
        # How long it goes by what it last knew.
        self._patience_s = self._options.session_timeout_s * 2 / 3
        self._place = Place(broker_id, None, self._options.may_found)
        self._store: Store | None = None
        self._controller: Controller | None = None
        # Who was last seen to be the controller.
        self.owner: Owner | None = None
        self._owner_changed = asyncio.Event()
        self._entry: BrokerRegistration | None = None
        self._entry_given = asyncio.Event()
        self._registered: asyncio.Future[BrokerRegistration] | None = None
        self._registration: BrokerRegistration | None = None
        # Writes down which life has begun, before anything is done in it.
        self.on_registered: Callable[[int], Awaitable[None]] = _note_nothing
        # Whether the entry is of the session at hand.
        self._is_entered = False
        # Whether this broker's metadata shows its entry of an epoch, and whether that is open.
        self.shows_entry: Callable[[int], bool] = lambda broker_epoch: True
        self._is_unseen = False
        # When the store was last within reach, on the monotonic clock; None while it is.
        self.out_of_touch_since: float | None = None
        self._deadline = math.inf
        self._task: asyncio.Task[None] | None = None
        self._is_candidate = True
        # Called when another broker has the office, or nobody.
        self.on_owner_changed: Callable[[], None] = lambda: None

    # -- what others ask --------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The session at hand, or the last one."""
        assert self._store is not None, "the membership was not started"
        return self._store

    @property
    def broker_epoch(self) -> int:
        """That of the entry as it was last written; -1 before the first."""
        return -1 if self._registration is None else self._registration.epoch

    @property
    def controller(self) -> Controller | None:
        """The controller, where this broker has the office."""
        controller = self._controller
        return controller if controller is not None and controller.running else None

    @property
    def is_controlled(self) -> bool:
        """Whether anybody has the office, as far as it is known here."""
        return self.owner is not None and not self.out_of_touch

    @property
    def out_of_touch(self) -> bool:
        if self._is_unseen:
            self._is_unseen = not self.shows_entry(self.broker_epoch)
        if self._is_unseen or self._clock.monotonic() >= self._deadline:
            return True
        # After a stop of the whole process nobody has told it anything yet.
        return self._store is not None and self._store.silent_s >= self._patience_s

    async def find_controller(self, timeout_s: float) -> Owner | Controller:
        """The controller itself where it is here, else who it is; KafkaError where nobody is."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if self.controller is not None:
                        return self.controller
                    owner = self.owner
                    if owner is not None and owner.broker_id != self.broker_id:
                        return owner
                    await self._owner_changed.wait()
        except TimeoutError:
            raise not_controller() from None

    # -- beginning and end ------------------------------------------------------------------------

    async def start(self, endpoint: Endpoint | None) -> None:
        """Connect to the store, and stand for the office from here on.

        `endpoint` is where other brokers reach this one. A store that is shared is waited for.
        """
        assert self._task is None, "a membership starts once"
        self._place = self._place._replace(endpoint=endpoint)
        store = await self._connect_patiently()
        self._task = asyncio.create_task(self._run(store), name=f"membership-{self.broker_id}")

    async def register(self, entry: BrokerRegistration) -> BrokerRegistration:
        """Enter the cluster, and enter again with every new session.

        KafkaError DUPLICATE_BROKER_REGISTRATION where another broker has the id and keeps it.
        """
        assert self._task is not None, "the membership was not started"
        self._registered = asyncio.get_running_loop().create_future()
        self._entry = entry
        self._entry_given.set()
        either: list[asyncio.Future[Any]] = [self._registered, self._task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._registered.done():
            self._task.result()
            raise not_controller()
        return self._registered.result()

    async def stand_down(self) -> None:
        """Give the office back and do not take it again: others have it while this broker stops."""
        self._is_candidate = False
        if self._controller is not None:
            await self._controller.close()

    async def close(self) -> None:
        """Give the office back, end the session."""
        await self.stand_down()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._store is not None:
            await self._store.close()

    async def wait_failed(self) -> None:
        """Raise what makes it pointless to go on."""
        assert self._task is not None, "the membership was not started"
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    # -- sessions ---------------------------------------------------------------------------------

    async def _run(self, store: Store) -> None:
        while True:
            await self._live(store)
            if not self._options.is_shared:
                raise StoreError("the session with the metadata store was lost")
            _log.warning("session lost node_id=%d session=%d", self.broker_id, store.session)
            await store.close()
            store = await self._connect_patiently()
            _log.info("session begun node_id=%d session=%d", self.broker_id, store.session)

    async def _connect_patiently(self) -> Store:
        """A session; a store out of reach is waited for, and the log says so."""
        delay_s = _CONNECT_DELAY_S
        while True:
            try:
                self._store = await self._connect()
                return self._store
            except (StorageError, StoreError) as error:
                waits = isinstance(error, StoreUnreachable | StoreError) or self._task is not None
                if not self._options.is_shared or not waits:
                    raise
                _log.warning(
                    "the metadata store is out of reach: %s; trying again in %.1f s node_id=%d",
                    error, delay_s, self.broker_id,
                )  # fmt: skip
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _CONNECT_DELAY_MAX_S)

    async def _live(self, store: Store) -> None:
        """One session, until it is lost."""
        lost = asyncio.Event()

        def changed(state: SessionState) -> None:
            self._session_changed(state, store.silent_s)
            if state is SessionState.LOST:
                lost.set()

        cancel = store.watch_session(changed)
        changed(store.session_state)
        tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(lost.wait()),
            asyncio.create_task(self._stand(store), name="candidate"),
            asyncio.create_task(self._keep_entry(store), name="entry"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            cancel()
            for task in tasks:
                task.cancel()
            self._take_owner(None)
        await asyncio.wait(tasks)

    def _session_changed(self, state: SessionState, silent_s: float) -> None:
        now = self._clock.monotonic()
        if state is SessionState.LOST:
            if self.out_of_touch_since is None:
                self.out_of_touch_since = now
            # What the others do next does not wait for this broker any more.
            self._deadline = now
            self._is_entered = False
        elif state is SessionState.SUSPENDED:
            if self.out_of_touch_since is None:
                self.out_of_touch_since = now - silent_s
                self._deadline = self.out_of_touch_since + self._patience_s
        elif self._registration is None or self._is_entered:
            self._in_touch()

    def _in_touch(self) -> None:
        self.out_of_touch_since, self._deadline = None, math.inf

    # -- the office -------------------------------------------------------------------------------

    async def _stand(self, store: Store) -> None:
        """Have the office whenever nobody has it."""
        changed = asyncio.Event()

        def tell(event: WatchEvent) -> None:
            changed.set()

        cancel = store.watch(layout.CONTROLLER_OWNER, tell)
        is_first = True
        try:
            while True:
                changed.clear()
                try:
                    had_office = await self._look(store, hurry=is_first)
                except StoreError as error:
                    self._check_alone(error)
                    self._say_seldom("office not seen", error)
                    await asyncio.sleep(_RETRY_S)
                    continue
                is_first = False
                if had_office:
                    continue
                try:
                    async with asyncio.timeout(_LOOK_AGAIN_S):
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            cancel()

    async def _look(self, store: Store, *, hurry: bool) -> bool:
        """See who has the office, take it where nobody has; whether this broker had it."""
        if await self._see_owner(store):
            return False
        if not self._is_candidate:
            return False
        if not hurry:
            await asyncio.sleep(self._rules.random.below(_JITTER_MS) / 1000)
        try:
            await self._hold_office(store)
        except OfficeTaken:
            return not await self._see_owner(store)
        return True

    async def _see_owner(self, store: Store) -> bool:
        """Whether another session has the office."""
        # A server that lags would show one that is gone, to all who could take its place.
        await store.sync()
        node = await store.read(layout.CONTROLLER_OWNER)
        is_taken = node is not None and node.session != store.session
        self._take_owner(Owner.decode(node.value) if node is not None and is_taken else None)
        return is_taken

    async def _hold_office(self, store: Store) -> None:
        """Be the controller, for as long as it lasts."""
        limits = ControllerLimits(out_of_touch_s=self._patience_s)
        controller = Controller(store, self._place, self._rules, limits, self._offload)
        try:
            await controller.start()
            self._controller = controller
            image = controller.image
            self._take_owner(Owner(self.broker_id, image.controller_epoch, self._place.endpoint))
            await controller.wait_closed()
        except (StorageError, KafkaError) as error:
            self._check_alone(error)
            if isinstance(error, StorageError) and self._entry is None:
                # Nobody will mend what the store holds while this broker starts.
                raise
            _log.error("not the controller any more node_id=%d reason=%s", self.broker_id, error)
            await asyncio.sleep(_RETRY_S)
        finally:
            self._controller = None
            controller.abandon()
            self._take_owner(None)

    def _check_alone(self, error: Exception) -> None:
        """A store that is nobody else's does not get better by trying again."""
        if not self._options.is_shared:
            raise error

    def _take_owner(self, owner: Owner | None) -> None:
        if owner == self.owner:
            return
        self.owner = owner
        self._owner_changed.set()
        self._owner_changed = asyncio.Event()
        self.on_owner_changed()

    # -- the entry --------------------------------------------------------------------------------

    async def _keep_entry(self, store: Store) -> None:
        """Once there is an entry, have it in the store."""
        path = layout.broker_path(self.broker_id)
        changed = asyncio.Event()
        cancel = store.watch(path, lambda event: changed.set())
        try:
            while True:
                await self._entry_given.wait()
                changed.clear()
                try:
                    await self._enter(store)
                except (StoreError, KafkaError) as error:
                    if isinstance(error, StoreError):
                        self._check_alone(error)
                    elif self._registration is None:
                        self._entry_given.clear()
                        self._answer(error)
                        continue
                    self._say_seldom("not registered", error)
                    await asyncio.sleep(_RETRY_S)
                    continue
                await changed.wait()
        finally:
            cancel()

    async def _enter(self, store: Store) -> None:
        """Write the entry, unless it is there as this session wrote it."""
        entry = self._entry
        assert entry is not None
        node = await store.read(layout.broker_path(self.broker_id))
        written = None if node is None else (node.session, node.created)
        if written == (store.session, self.broker_epoch):
            return
        await wait_for_id(store, self.broker_id, self._options.session_timeout_s)
        if self._registration is not None:
            # This process has outlived its session: nothing of that life is missing.
            entry = entry._replace(clean_epoch=self.broker_epoch)
        self._registration = await register_broker(store, entry)
        self._is_unseen = True
        await self.on_registered(self.broker_epoch)
        self._is_entered = True
        if store.session_state is SessionState.CONNECTED:
            self._in_touch()
        self._answer(self._registration)
        _log.info("registered node_id=%d epoch=%d", self.broker_id, self.broker_epoch)

    def _say_seldom(self, what: str, error: Exception) -> None:
        """It is tried several times a second for as long as the store is away."""
        tries = self._lines.count((what, str(error)))
        if tries:
            _log.warning("%s node_id=%d tries=%d reason=%s", what, self.broker_id, tries, error)

    def _answer(self, outcome: BrokerRegistration | KafkaError) -> None:
        future = self._registered
        if future is None or future.done():
            return
        if isinstance(outcome, KafkaError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
