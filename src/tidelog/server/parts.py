"""What a running broker is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.cluster.broker_login import BrokerLogin
from tidelog.cluster.controller_link import ControllerLink
from tidelog.cluster.image_feed import ImageFeed
from tidelog.cluster.membership import Membership
from tidelog.coordinators.groups.coordinator import GroupCoordinator
from tidelog.replication.fetchers import Fetchers
from tidelog.replication.isr_changes import IsrChanges
from tidelog.replication.mending import Mending
from tidelog.replication.replicas import Replicas
from tidelog.server.deferred import DeferredWork
from tidelog.server.fetch_sessions import FetchSessions
from tidelog.server.frontend import Frontend
from tidelog.server.housekeeping import Housekeeping
from tidelog.server.listener import Listener
from tidelog.server.submitter import Submitter
from tidelog.server.tools import RequestTools
from tidelog.server.transactions import Transactions
from tidelog.storage.data_dir import DataDir

if TYPE_CHECKING:
    from tidelog.server.http import HttpServer


@dataclass(slots=True)
class Parts:
    """What a running broker is made of, in the order in which it was built."""

    deferred: DeferredWork
    data_dir: DataDir
    membership: Membership
    link: ControllerLink
    metadata: ImageFeed
    replicas: Replicas
    isr_changes: IsrChanges
    mending: Mending
    fetchers: Fetchers
    submitter: Submitter
    groups: GroupCoordinator
    transactions: Transactions
    fetch_sessions: FetchSessions
    login: BrokerLogin
    requests: RequestTools
    frontend: Frontend
    listeners: list[Listener]
    housekeeping: Housekeeping
    pages: HttpServer | None = None
