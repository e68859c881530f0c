"""How a broker reaches its controller, wherever that is: in this process, or on another broker.

Promises: a command is handed on only once, unless it is certain that nothing was done with it; what
is sent and not answered is REQUEST_TIMED_OUT, since nobody knows. Where there is no controller the
link waits for one, up to the deadline, and the error then says so. Each purpose has a connection of
its own: following the metadata, which waits, holds up no command.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from tidelog.client.faults import ConnectError, NetworkError, UnsupportedApiError, error_code
from tidelog.cluster import wire
from tidelog.cluster.changes import Update
from tidelog.cluster.commands import Answer, Command
from tidelog.cluster.controller import UNKNOWN_EPOCH, Controller, not_controller
from tidelog.cluster.image import Endpoint
from tidelog.cluster.membership import Membership
from tidelog.cluster.office import Owner
from tidelog.cluster.planner import PlannerRules, refused_together
from tidelog.errors import ErrorCode, KafkaError, ProtocolError, TidelogError
from tidelog.host.offload import Offload
from tidelog.protocol.apis import api

_log = logging.getLogger(__name__)

# Less than clients wait for an answer, more than an ordinary failover takes.
COMMAND_TIMEOUT_S: Final = 20.0
_COMMANDS_PER_REQUEST: Final = 256
_RETRY_S: Final = 0.1
_CHARGE_TIMEOUT_S: Final = 2.0
# For what the answer needs on its way, beyond what it may wait.
_MARGIN_S: Final = 5.0

Outcome = Answer | KafkaError


class Peer(Protocol):
    """A connection to another broker, as `cluster/peer` makes it."""

    async def request(self, api_name: str, message: object, timeout_s: float) -> Any: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Refused:
    """A command that was not done, as it goes over the wire."""

    code: int
    message: str


class Decided(NamedTuple):
    """What each command came to, and the version of the metadata in which it can be seen."""

    outcomes: list[Outcome]
    version: int


class Mutations(NamedTuple):
    """Partitions that a client wants to create and delete, one number for each topic."""

    user: str
    client_id: str
    is_strict: bool
    counts: Sequence[int]


class Charged(NamedTuple):
    """How many of the mutations a quota allows, and how long the client has to wait."""

    taken: int
    throttle_ms: int


def encode_commands(commands: Sequence[Command]) -> bytes:
    return wire.encode(tuple(commands))


def decode_commands(data: bytes) -> tuple[Command, ...]:
    return tuple(wire.decode(tuple[Command, ...], data))


def encode_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    return wire.encode(
        tuple(
            Refused(each.code, each.message) if isinstance(each, KafkaError) else each
            for each in outcomes
        )
    )


def decode_outcomes(data: bytes) -> list[Outcome]:
    decoded = wire.decode(tuple[Answer | Refused, ...], data)
    return [
        KafkaError(error_code(each.code), each.message) if isinstance(each, Refused) else each
        for each in decoded
    ]


class ControllerLink:
    """One per broker."""

    def __init__(
        self,
        membership: Membership,
        rules: PlannerRules,
        open_peer: Callable[[Endpoint], Peer],
        offload: Offload,
    ) -> None:
        self._membership = membership
        self._rules = rules
        # Reading a whole image takes its time on a large cluster.
        self._offload = offload
        self._metadata = _Line(open_peer)
        self._commands = _Line(open_peer)
        membership.on_owner_changed = self._owner_changed
        # Called when another broker is the controller, or nobody.
        self.on_controller_changed: Callable[[], None] = lambda: None

    def close(self) -> None:
        self._metadata.close()
        self._commands.close()

    # -- metadata ---------------------------------------------------------------------------------

    async def changes_after(self, version: int, timeout_s: float, controller_epoch: int) -> Update:
        """As `Controller.changes_after`, wherever the controller is."""
        found = await self._membership.find_controller(timeout_s)
        if isinstance(found, Controller):
            return await found.changes_after(version, timeout_s, controller_epoch)
        try:
            return await self._changes_from(found, version, timeout_s, controller_epoch)
        except ProtocolError:
            if controller_epoch == UNKNOWN_EPOCH:
                raise
            # A newer controller knows changes that this version does not; an image is an image.
            return await self._changes_from(found, version, timeout_s, UNKNOWN_EPOCH)

    async def _changes_from(
        self, found: Owner, version: int, timeout_s: float, controller_epoch: int
    ) -> Update:
        request = api("FollowMetadata").request(
            broker_id=self._membership.broker_id,
            version=version,
            controller_epoch=controller_epoch,
            timeout_ms=int(timeout_s * 1000),
        )
        response = await self._metadata.request(
            found, "FollowMetadata", request, timeout_s + _MARGIN_S
        )
        _raise_for(response)
        return await self._offload.run(partial(wire.decode, Update), response.update)

    # -- commands ---------------------------------------------------------------------------------

    async def submit(self, command: Command, principal: str = "") -> Answer:
        """Have the controller do a command; KafkaError where it is refused."""
        (outcome,) = (await self.decide([command], principal)).outcomes
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    async def submit_all(self, commands: Sequence[Command], principal: str = "") -> list[Outcome]:
        """As `submit` for several, each done or refused by itself."""
        return (await self.decide(commands, principal)).outcomes

    async def decide(
        self,
        commands: Sequence[Command],
        principal: str = "",
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> Decided:
        """What the controller makes of the commands of one request, in order."""
        refusal = refused_together(commands, self._rules)
        if refusal is not None:
            return Decided([refusal] * len(commands), 0)
        deadline = asyncio.get_running_loop().time() + timeout_s
        outcomes: list[Outcome] = []
        version = 0
        for start in range(0, len(commands), _COMMANDS_PER_REQUEST):
            some = commands[start : start + _COMMANDS_PER_REQUEST]
            decided = await self._decide_some(some, principal, deadline)
            outcomes += decided.outcomes
            version = max(version, decided.version)
        return Decided(outcomes, version)

    async def _decide_some(
        self, commands: Sequence[Command], principal: str, deadline: float
    ) -> Decided:
        """Try until each has an outcome that is not "ask another"."""
        loop = asyncio.get_running_loop()
        message = "The cluster has no controller at the moment; try again later."
        outcomes: list[Outcome] = [KafkaError(ErrorCode.NOT_CONTROLLER, message) for _ in commands]
        left = list(range(len(commands)))
        version = 0
        while left and (remaining_s := deadline - loop.time()) > 0:
            try:
                decided = await self._decide_once(
                    [commands[index] for index in left], principal, remaining_s
                )
            except KafkaError as error:
                decided = Decided([error] * len(left), 0)
            version = max(version, decided.version)
            again = []
            for index, outcome in zip(left, decided.outcomes, strict=True):
                if isinstance(outcome, KafkaError) and outcome.code is ErrorCode.NOT_CONTROLLER:
                    again.append(index)
                else:
                    outcomes[index] = outcome
            left = again
            if left:
                await asyncio.sleep(min(_RETRY_S, max(0.0, deadline - loop.time())))
        return Decided(outcomes, version)

    async def _decide_once(
        self, commands: Sequence[Command], principal: str, remaining_s: float
    ) -> Decided:
        """KafkaError NOT_CONTROLLER where nothing was done, for certain."""
        found = await self._membership.find_controller(remaining_s)
        if isinstance(found, Controller):
            return await decide_here(found, commands, remaining_s)
        request = api("SubmitCommand").request(
            principal=principal,
            timeout_ms=int(remaining_s * 1000),
            commands=encode_commands(commands),
        )
        response = await self._send(found, request, remaining_s + _MARGIN_S)
        _raise_for(response)
        try:
            return Decided(decode_outcomes(response.outcomes), response.version)
        except ProtocolError as error:
            raise _outcome_unknown(str(error)) from error

    async def charge(self, mutations: Mutations) -> Charged | None:
        """What the controller's broker makes of a client's quota: one for the whole cluster.

        None where this broker is to judge by itself: it is the controller, or that is of a version
        that does not judge, or cannot be reached.
        """
        try:
            found = await self._membership.find_controller(_CHARGE_TIMEOUT_S)
            if isinstance(found, Controller):
                return None
            request = api("SubmitCommand").request(
                timeout_ms=int(_CHARGE_TIMEOUT_S * 1000),
                commands=encode_commands(()),
                quota_user=mutations.user,
                quota_client_id=mutations.client_id,
                quota_is_strict=mutations.is_strict,
                mutations=list(mutations.counts),
            )
            response = await self._send(found, request, _CHARGE_TIMEOUT_S)
        except KafkaError:
            return None
        if response.error_code or response.mutations_taken < 0:
            return None
        return Charged(response.mutations_taken, response.throttle_time_ms)

    async def _send(self, owner: Owner, request: object, timeout_s: float) -> Any:
        """NOT_CONTROLLER where it is certain that nothing was sent."""
        try:
            return await self._commands.request(owner, "SubmitCommand", request, timeout_s)
        except UnsupportedApiError as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
        except (NetworkError, ProtocolError) as error:
            if not isinstance(error, ConnectError):
                raise _outcome_unknown(str(error)) from error
        except TidelogError as error:
            # The two brokers do not know each other yet, or the store could not be asked.
            _log.warning("controller not reached node_id=%d reason=%s", owner.broker_id, error)
        raise not_controller()

    def _owner_changed(self) -> None:
        """Whoever waits for an answer of the last controller waits in vain."""
        self._metadata.leave(self._membership.owner)
        self._commands.leave(self._membership.owner)
        self.on_controller_changed()


async def decide_here(
    controller: Controller, commands: Sequence[Command], timeout_s: float
) -> Decided:
    """What the controller of this process makes of commands, within the time."""
    try:
        async with asyncio.timeout(timeout_s):
            outcomes = await controller.submit_all(commands)
    except TimeoutError:
        raise _outcome_unknown("the metadata store did not answer in time") from None
    return Decided(outcomes, controller.image.version)


class _Line:
    """The connection to the controller for one purpose; another controller, another connection.

    One that is back at the same address is another, too: an answer of the last one may never come.
    """

    def __init__(self, open_peer: Callable[[Endpoint], Peer]) -> None:
        self._open_peer = open_peer
        self._owner: Owner | None = None
        self._peer: Peer | None = None

    async def request(self, owner: Owner, api_name: str, message: object, timeout_s: float) -> Any:
        if owner.endpoint is None:
            # A version that does not say where it is reached, or has no listener for brokers.
            raise not_controller()
        if self._peer is None or self._owner != owner:
            self.close()
            self._owner, self._peer = owner, self._open_peer(owner.endpoint)
        return await self._peer.request(api_name, message, timeout_s)

    def leave(self, owner: Owner | None) -> None:
        """Close the connection unless it leads to that one."""
        if self._owner != owner:
            self.close()

    def close(self) -> None:
        peer, self._peer, self._owner = self._peer, None, None
        if peer is not None:
            peer.close()


def _raise_for(response: Any) -> None:
    if response.error_code:
        raise KafkaError(error_code(response.error_code), response.error_message or "")


def _outcome_unknown(reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT, f"It is not known whether the change was made: {reason}"
    )
