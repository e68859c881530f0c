"""What requests are served with: some for every request, and some for each family of handlers.

`server/routes` says which family an API belongs to; `server/broker` builds the tools, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.cluster.encoded_updates import EncodedUpdates
from tidelog.cluster.image_feed import ImageFeed
from tidelog.cluster.membership import Membership
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinators.groups.coordinator import GroupCoordinator
from tidelog.coordinators.transactions.coordinator import TransactionCoordinator
from tidelog.coordinators.transactions.marking import MarkerWriter
from tidelog.coordinators.transactions.verification import Verifier
from tidelog.host.clock import Clock
from tidelog.host.disk import Disk
from tidelog.host.line_rate import LineRate
from tidelog.host.offload import Offload
from tidelog.host.random import Random
from tidelog.replication.replicas import Replicas
from tidelog.security.authorizer import Authorizer
from tidelog.security.broker_identity import BrokerIdentity
from tidelog.security.failure_delays import FailureDelays
from tidelog.security.scram_users import ScramUsers
from tidelog.server.answer_cache import AnswerCache
from tidelog.server.answer_memory import AnswerMemory
from tidelog.server.audit_log import AuditLog
from tidelog.server.context import RequestContext
from tidelog.server.fetch_sessions import FetchSessions
from tidelog.server.metrics import BrokerMetrics
from tidelog.server.other_brokers import OtherBrokers
from tidelog.server.pieces import Turns
from tidelog.server.submitter import Submitter
from tidelog.server.throttling import Throttling


@dataclass(slots=True, eq=False)
class RequestTools:
    """For every request: how it is timed, allowed, paced, answered and held to quotas."""

    clock: Clock
    authorizer: Authorizer
    metadata: ImageFeed
    turns: Turns
    answer_memory: AnswerMemory
    metrics: BrokerMetrics
    audit: AuditLog
    throttling: Throttling


@dataclass(slots=True, eq=False)
class DataTools:
    """For requests about the records of partitions."""

    replicas: Replicas
    fetch_sessions: FetchSessions
    clock: Clock
    offload: Offload
    metrics: BrokerMetrics
    # Of lines about data that cannot be read.
    damage_rate: LineRate
    broker_id: int
    verifier: Verifier


@dataclass(slots=True, eq=False)
class DiskTools:
    """For requests about the disk that the partitions lie on."""

    replicas: Replicas
    disk: Disk
    data_directory: str


@dataclass(slots=True, eq=False)
class TransactionTools:
    """For requests of producers about themselves and their transactions."""

    coordinator: TransactionCoordinator
    groups: GroupCoordinator
    writer: MarkerWriter


@dataclass(slots=True, eq=False)
class SaslTools:
    """For requests about who is at the other end of a connection."""

    # Known once the store could be asked.
    identity: Callable[[], BrokerIdentity | None]
    random: Random
    failure_delays: FailureDelays
    scram_users: ScramUsers = field(default_factory=ScramUsers)


@dataclass(slots=True, eq=False)
class GroupTools:
    """For requests about groups and their offsets."""

    coordinator: GroupCoordinator
    broker_id: int
    transactions: TransactionCoordinator
    verifier: Verifier


@dataclass(slots=True, eq=False)
class ControllerTools:
    """For requests of other brokers to the controller."""

    membership: Membership
    updates: EncodedUpdates


@dataclass(slots=True, eq=False)
class ClusterTools:
    """For requests about brokers, topics and settings."""

    broker_id: int
    submitter: Submitter
    answers: AnswerCache
    others: OtherBrokers
    # The settings in force now.
    config: Callable[[], BrokerConfig]
    # Whether some broker is the controller, as far as this one knows.
    is_controlled: Callable[[], bool] = lambda: True


# A request with the tools of its handler's family.
DataContext = RequestContext[DataTools]
DiskContext = RequestContext[DiskTools]
TransactionContext = RequestContext[TransactionTools]
SaslContext = RequestContext[SaslTools]
GroupContext = RequestContext[GroupTools]
ControllerContext = RequestContext[ControllerTools]
ClusterContext = RequestContext[ClusterTools]
