"""The broker that coordinates a transactional id or a group: found, asked, and found anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidelog.client.connection import Call
from tidelog.client.faults import (
    ConnectError,
    NetworkError,
    NoBrokerError,
    error_code,
    raise_for,
)
from tidelog.client.group_admin import CoordinatorKind, find_coordinator
from tidelog.client.metadata import Cluster
from tidelog.client.operation import Action, Operation, action_for, ask
from tidelog.errors import ErrorCode

_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
# It may have been carried out for all that we know.
UNCLEAR: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR})
# The coordinator looked, and changed nothing.
_UNCHANGED: Final = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class Versions(NamedTuple):
    """The oldest and the newest version of an API that say what is meant."""

    oldest: int = 0
    newest: int = 32767


ANY_VERSION: Final = Versions()


@dataclass(slots=True)
class Coordinator:
    """The broker that coordinates a transactional id or a group, looked up when it is needed."""

    key: str
    kind: CoordinatorKind = CoordinatorKind.TRANSACTION
    node: int | None = None
    # A request may have been carried out, or may yet be, of which we have no answer.
    has_unanswered: bool = False

    def ask(
        self, cluster: Cluster, api: str, request: object, versions: Versions = ANY_VERSION
    ) -> Operation[Any]:
        """One try; whoever looks at the answer's codes does so with `check`."""
        if self.node is None:
            self.node = yield from find_coordinator(cluster, self.key, self.kind)
        call = Call(self.node, api, request, versions.newest, versions.oldest)
        try:
            return (yield from ask(call))
        except NetworkError as error:
            self.node = None
            self.has_unanswered |= not isinstance(error, ConnectError | NoBrokerError)
            raise

    def check(self, code: int) -> None:
        """KafkaError unless all is well; what it means for the coordinator is noted."""
        known = error_code(code)
        if known in _MOVED:
            self.node = None
        passes = action_for(known) is not Action.FAIL
        if known in UNCLEAR or (passes and known not in _UNCHANGED):
            self.has_unanswered = True
        raise_for(code)
