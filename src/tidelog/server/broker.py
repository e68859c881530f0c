"""One broker: everything is built here, top to bottom, and stopped in the opposite order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidelog._kernels import COMPILED
from tidelog.cluster.broker_login import BrokerLogin
from tidelog.cluster.commands import BeginShutdown, ConfirmDeletion
from tidelog.cluster.controller_link import ControllerLink
from tidelog.cluster.encoded_updates import EncodedUpdates
from tidelog.cluster.image import BrokerRegistration, MetadataImage
from tidelog.cluster.image_feed import ImageFeed
from tidelog.cluster.key import read_identity
from tidelog.cluster.layout import VALUE_VERSION, check_version
from tidelog.cluster.membership import Membership, MembershipOptions
from tidelog.cluster.planner import PlannerRules
from tidelog.config import BrokerConfig
from tidelog.coordinators.groups.coordinator import GroupCoordinator
from tidelog.errors import StorageError, TidelogError
from tidelog.host.host import Host
from tidelog.host.line_rate import LineRate
from tidelog.host.offload import ThreadOffload
from tidelog.model import TopicPartition
from tidelog.replication.isr_changes import IsrChanges
from tidelog.replication.mending import Mending
from tidelog.replication.replicas import Replicas
from tidelog.security.failure_delays import FailureDelays
from tidelog.server.addresses import endpoint_of, make_listeners, reachable
from tidelog.server.answer_cache import AnswerCache
from tidelog.server.answer_memory import AnswerMemory
from tidelog.server.audit_log import make_audit_log
from tidelog.server.configured import (
    authorizer_of,
    connection_limits,
    data_directory,
    descriptor_shares,
    make_throttling,
    own_min_isr,
    session_limits,
)
from tidelog.server.deferred import DeferredWork
from tidelog.server.dispatch import Dispatcher
from tidelog.server.fetch_sessions import FetchSessions
from tidelog.server.followers import make_fetchers
from tidelog.server.frontend import Frontend
from tidelog.server.housekeeping import Household, Housekeeping
from tidelog.server.listener import Listener
from tidelog.server.metrics import BrokerMetrics
from tidelog.server.other_brokers import OtherBrokers
from tidelog.server.outbox import ScratchBuffer
from tidelog.server.parts import Parts
from tidelog.server.peering import Peering
from tidelog.server.pieces import Turns
from tidelog.server.request_memory import RequestMemory
from tidelog.server.submitter import Submitter
from tidelog.server.tools import (
    ClusterTools,
    ControllerTools,
    DataTools,
    DiskTools,
    GroupTools,
    RequestTools,
    SaslTools,
    TransactionTools,
)
from tidelog.server.transactions import Surroundings, Transactions, allocated_ids
from tidelog.storage.data_dir import DataDir
from tidelog.storage.file_cache import FileCache
from tidelog.storage.life import Known
from tidelog.storage.log_context import LogContext
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.port import Store
from tidelog.version import VERSION

if TYPE_CHECKING:
    from tidelog.server.first_user import FirstUser

_log = logging.getLogger(__name__)

METADATA_FILE = "metadata.db"
_HAND_OVER_SECONDS_UNHEARD = 1.0


class Broker:
    """A broker that runs on the current event loop, from `start` to `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        host: Host,
        accept_loss: Collection[TopicPartition] = (),
        connect_store: Callable[[], Awaitable[Store]] | None = None,
        first_users: Sequence[FirstUser] = (),
    ) -> None:
        self._config = config
        self._first_users = first_users
        self._host = host
        # The metadata of a cluster; a broker by itself keeps its own.
        self._connect_store = connect_store
        # Partitions to serve with what is left of them.
        self._accept_loss = accept_loss
        self._parts: Parts | None = None
        self._stopping = False
        # The listener that serves the other brokers before this one is ready.
        self._early: Listener | None = None

    # -- what others ask --------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Host and port of the first listener, as a client is given them."""
        listener = self._running().listeners[0]
        return f"{reachable(listener.address.host)}:{listener.port}"

    @property
    def metrics_port(self) -> int | None:
        pages = self._running().pages
        return None if pages is None else pages.port

    @property
    def parts(self) -> Parts:
        return self._running()

    # -- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Bring everything up; when this returns, clients are served."""
        config, host = self._config, self._host
        for warning in config.warnings:
            _log.warning("configuration: %s", warning)
        directory = data_directory(config)
        deferred = DeferredWork(host)
        context = LogContext(
            host.disk,
            host.clock,
            FileCache(host.disk, descriptor_shares(config).open_files),
            host.random,
            deferred.run_later,
            lambda path, error: data_dir.failed(error),
        )
        data_dir = DataDir.open(directory, context)
        context.running_clock.resume(host.disk, directory, is_new=data_dir.identity is None)
        self._parts = self._build(deferred, data_dir)
        try:
            await self._bring_up(self._parts)
        except BaseException:
            await self.stop(drain=False)
            raise

    async def _open_own_store(self, data_dir: DataDir) -> Store:
        return await EmbeddedStore.open(
            os.path.join(data_dir.path, METADATA_FILE),
            self._host.disk,
            ThreadOffload("store", 1),
            # A directory that belongs to a cluster has lost its metadata, not never had any.
            create=data_dir.identity is None,
        )

    def _build(self, deferred: DeferredWork, data_dir: DataDir) -> Parts:
        """Everything that stands on the data directory, not yet started."""
        config, host = self._config, self._host
        rules = PlannerRules(host.random, config)
        membership = Membership(
            config.node_id,
            self._connect_store or partial(self._open_own_store, data_dir),
            rules,
            host,
            MembershipOptions(
                is_shared=self._connect_store is not None,
                session_timeout_s=config.get_int("zookeeper.session.timeout.ms") / 1000,
                may_found=data_dir.identity is None,
            ),
        )
        membership.on_registered = partial(self._begin_life, data_dir)
        login = BrokerLogin(lambda: read_identity(membership.store), host.random)
        peering = Peering(host.network, lambda: replicas.config, login.authenticate)
        link = ControllerLink(membership, rules, peering.open, host.offload)
        metadata = ImageFeed(link.changes_after)
        link.on_controller_changed = metadata.hurry
        membership.shows_entry = lambda epoch: _is_in(metadata.image, config.node_id, epoch)
        replicas = Replicas(config.node_id, config, data_dir, host, membership)
        isr_changes = IsrChanges(replicas.standing, link.submit_all)
        fetchers = make_fetchers(config, host, replicas.standing, metadata, peering)
        replicas.standing.role_changed = lambda each: fetchers.follow(
            each.following, each.following.leader_id
        )
        submitter = Submitter(link, metadata, replicas)
        groups = GroupCoordinator(
            config.node_id, replicas, host, lambda: metadata.image, submitter.submit
        )
        transactions = Transactions(
            Surroundings(
                replicas,
                host,
                metadata,
                submitter,
                groups,
                allocated_ids(membership, link),
                peering.open,
                config.listeners.inter_broker,
            )
        )
        fetch_sessions = FetchSessions(session_limits(config), host.clock, host.random)
        answers, metrics = AnswerCache(), BrokerMetrics()
        throttling = make_throttling(config, host.clock, metadata, metrics)
        requests = RequestTools(
            host.clock,
            authorizer_of(config, lambda: metadata.image.acls),
            metadata,
            Turns(),
            AnswerMemory(),
            metrics,
            make_audit_log(config, data_dir.path, host),
            throttling,
        )
        families = (
            DataTools(
                replicas,
                fetch_sessions,
                host.clock,
                host.offload,
                metrics,
                LineRate(host.clock),
                config.node_id,
                transactions.verifier,
            ),
            DiskTools(replicas, host.disk, os.path.abspath(data_dir.path)),
            TransactionTools(transactions.coordinator, groups, transactions.writer),
            SaslTools(lambda: login.identity, host.random, FailureDelays(host.clock)),
            GroupTools(groups, config.node_id, transactions.coordinator, transactions.verifier),
            ControllerTools(membership, EncodedUpdates(host.offload)),
            ClusterTools(
                config.node_id,
                submitter,
                answers,
                OtherBrokers(metadata, config.listeners.inter_broker, peering.open),
                lambda: replicas.config,
                lambda: membership.is_controlled,
            ),
        )
        limits = connection_limits(config)
        frontend = Frontend(
            limits,
            Dispatcher(requests, families),
            RequestMemory(config.get_int("queued.max.request.bytes"), limits.frame_bytes_max),
            ScratchBuffer(),
            host.clock,
            host.offload,
            host.network,
            metrics,
            throttling,
        )
        listeners = make_listeners(config, frontend)
        mending = Mending(replicas, isr_changes, data_dir, host)
        household = Household(replicas, isr_changes, data_dir, listeners, answers, metrics, mending)
        return Parts(
            deferred=deferred,
            data_dir=data_dir,
            membership=membership,
            link=link,
            metadata=metadata,
            replicas=replicas,
            isr_changes=isr_changes,
            mending=mending,
            fetchers=fetchers,
            submitter=submitter,
            groups=groups,
            transactions=transactions,
            fetch_sessions=fetch_sessions,
            login=login,
            requests=requests,
            frontend=frontend,
            listeners=listeners,
            housekeeping=Housekeeping(household, host),
        )

    async def _confirm_deletions(self, topic_ids: Sequence[UUID]) -> None:
        parts = self._running()
        epoch = parts.membership.broker_epoch
        await parts.submitter.submit(ConfirmDeletion(self._config.node_id, epoch, topic_ids))

    async def _bring_up(self, parts: Parts) -> None:
        config = self._config
        parts.requests.audit.start()
        for listener in parts.listeners:
            await listener.bind()
        await self._serve_brokers(parts)
        await self._unless_failed(parts.metadata.start())
        await self._unless_failed(parts.login.learn_soon())
        check_version(parts.metadata.image)
        parts.data_dir.identify(parts.metadata.image.cluster_id, config.node_id)
        replicas = parts.replicas
        # Recover, then register: a broker that is registered leads.
        await replicas.start(parts.metadata.image, self._accept_loss)
        parts.metadata.subscribe(replicas.image_changed)
        registration = await parts.membership.register(self._entry(parts))
        await self._unless_failed(
            parts.metadata.wait_for(lambda image: _is_in(image, *registration[:2]))
        )
        await replicas.serve(parts.metadata.image)
        replicas.on_caught_up.append(parts.groups.partitions_followed)
        replicas.on_caught_up.append(parts.transactions.coordinator.partitions_followed)
        replicas.confirm_deletions_through(self._confirm_deletions)
        parts.metadata.subscribe(parts.groups.image_changed)
        await replicas.settled()
        replicas.space.judge(replicas.config.get_int("disk.min.free.bytes"))
        parts.groups.start()
        parts.transactions.start()
        await self._add_first_users(parts)
        if config.metrics_listener is not None:
            from tidelog.server.page_server import serve_pages

            parts.pages = await serve_pages(parts, config, self._host, self.is_ready)
        parts.frontend.dispatcher.is_open = True
        for listener in parts.listeners:
            if listener is not self._early:
                listener.serve(config.get_int("socket.listen.backlog.size"))
        parts.housekeeping.start()
        _log.info(
            "started node_id=%d version=%s kernels=%s loop=%s partitions=%d",
            config.node_id, VERSION, "compiled" if COMPILED else "uncompiled, slower",
            type(asyncio.get_running_loop()).__module__, len(parts.replicas),
        )  # fmt: skip
        for listener in parts.listeners:
            _log.info(
                "listening listener=%s host=%s port=%d node_id=%d cluster_id=%s",
                listener.name, listener.address.host, listener.port, config.node_id,
                parts.metadata.image.cluster_id,
            )  # fmt: skip

    async def _add_first_users(self, parts: Parts) -> None:
        if not self._first_users:
            return
        from tidelog.server.first_user import create_first_user, first_user_warning

        for user in self._first_users:
            warning = first_user_warning(user, self._config)
            if warning is not None:
                _log.warning("%s", warning)
            identity = parts.login.identity
            if identity is None:
                raise StorageError("the metadata has no key of the cluster to create users with")
            await create_first_user(
                user, parts.metadata.image, parts.submitter, identity, self._host.offload
            )

    async def _serve_brokers(self, parts: Parts) -> None:
        """Stand for the office; where the store is shared, be there for the other brokers."""
        name = self._config.listeners.inter_broker
        listener = next(each for each in parts.listeners if each.name == name)
        if self._connect_store is not None:
            parts.frontend.dispatcher.is_open = False
            listener.serve(self._config.get_int("socket.listen.backlog.size"))
            self._early = listener
        await parts.membership.start(endpoint_of(listener))

    async def _begin_life(self, data_dir: DataDir, broker_epoch: int) -> None:
        await self._host.offload.run(data_dir.life.registered, broker_epoch)

    def _entry(self, parts: Parts) -> BrokerRegistration:
        """How this broker introduces itself to the cluster."""
        config, image = self._config, parts.metadata.image
        known = image.brokers.get(config.node_id) or image.absent.get(config.node_id)
        endpoints = tuple(endpoint_of(listener) for listener in parts.listeners)
        # Replicas must leave the machine: it is a rack, unless racks are named.
        machine = endpoints[0].host if self._connect_store is not None else None
        return BrokerRegistration(
            config.node_id,
            -1,
            config.get_str("broker.rack") or machine,
            endpoints,
            min_isr=own_min_isr(config),
            metadata_version=VALUE_VERSION,
            **parts.data_dir.vouch(
                None if known is None else Known(known.epoch, known.incarnation)
            )._asdict(),
        )

    async def _unless_failed(self, start: Coroutine[Any, Any, None]) -> None:
        """Wait for a step of the start, unless the membership fails before."""
        await _first_of(start, self._running().membership.wait_failed())

    def is_ready(self) -> bool:
        return self._parts is not None and not self._stopping

    async def wait_failed(self) -> None:
        """Raise what makes it pointless to go on: a metadata store that failed, say."""
        parts = self._running()
        await _first_of(parts.membership.wait_failed(), parts.metadata.wait_closed())

    async def stop(self, *, drain: bool = True) -> None:
        """Answer what was asked, then bring everything down, the data directory last."""
        parts, self._stopping = self._parts, True
        if parts is None:
            return
        seconds = self._config.get_int("shutdown.drain.ms") / 1000 if drain else 0.0
        if self._connect_store is not None and drain:
            await self._hand_over(parts, seconds)
        for listener in parts.listeners:
            listener.stop_accepting()
        # Members that wait for a rebalance would hold up the draining.
        parts.groups.stop()
        await parts.transactions.stop()
        if self._connect_store is not None:
            # So would brokers that wait for news of the metadata: they go to the next controller.
            await parts.membership.stand_down()
        loop = asyncio.get_running_loop()
        for listener in parts.listeners:
            await listener.drain(loop.time() + seconds)
        for task in parts.frontend.dispatcher.running_tasks:
            task.cancel()
        if parts.pages is not None:
            await parts.pages.close()
        await parts.housekeeping.stop()
        await parts.isr_changes.stop()
        # Followers wait for the logs that they cut.
        parts.replicas.truncations.retry_no_more()
        await parts.fetchers.stop()
        await parts.metadata.close()
        parts.link.close()
        parts.deferred.stop()
        await parts.replicas.close()
        await parts.membership.close()
        await parts.requests.audit.close()
        self._host.offload.close()
        self._parts = None
        _log.info("stopped node_id=%d", self._config.node_id)

    async def _hand_over(self, parts: Parts, seconds: float) -> None:
        """Have others lead while clients can still ask this broker who does."""
        node_id, epoch = self._config.node_id, parts.membership.broker_epoch
        if parts.metadata.image.brokers.keys() <= {node_id} or epoch < 0:
            return
        if parts.membership.out_of_touch_since is not None:
            # If nobody hears of the store, nobody is elected however long this waits.
            seconds = min(seconds, _HAND_OVER_SECONDS_UNHEARD)
        try:
            async with asyncio.timeout(seconds):
                decided = await parts.link.decide([BeginShutdown(node_id, epoch)], "", seconds)
                await parts.metadata.wait_for_version(decided.version)
            (outcome,) = decided.outcomes
            _log.info("leaders handed over node_id=%d outcome=%s", node_id, outcome)
        except (TidelogError, TimeoutError) as error:
            _log.warning("leaders not handed over node_id=%d reason=%r", node_id, error)

    def _running(self) -> Parts:
        assert self._parts is not None, "the broker is not running"
        return self._parts


def _is_in(image: MetadataImage, broker_id: int, broker_epoch: int) -> bool:
    known = image.brokers.get(broker_id)
    return known is not None and known.epoch >= broker_epoch


async def _first_of(*steps: Coroutine[Any, Any, None]) -> None:
    """Wait until one of them ends, and raise what it raised; the others are cancelled."""
    waits = [asyncio.ensure_future(each) for each in steps]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for wait in waits:
            wait.cancel()
