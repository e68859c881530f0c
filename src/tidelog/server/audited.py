"""Which requests the audit log names, and what it says of each.

Every administrative API has a row: what its requests are about, and what state that is in, which is
read before the request and after its answer. All else is the same for all of them: who asked, from
where, what was asked for, and every error of the answer. An API that changes nothing that an
administrator looks after stands in `audit_log.NOT_ADMIN`; one that stands in neither fails a test.

No secret gets in: bytes are never shown, and the value of a setting only where it is not sensitive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import CoroutineType, GeneratorType
from typing import Any, Final, NamedTuple

from tidelog.errors import ErrorCode
from tidelog.server import audit_states as states
from tidelog.server.audit_log import AuditEvent, AuditLog
from tidelog.server.audit_states import Key
from tidelog.server.context import RequestContext
from tidelog.server.pieces import LazyList
from tidelog.server.routes import Route

Context = RequestContext[Any]

_KEYS_IN_A_LINE: Final = 500
_ERRORS_SHOWN: Final = 100
_REFUSAL: Final = (
    "the audit log cannot be written, and audit.log.fail.closed=true: look at the broker's disk"
)


class Row(NamedTuple):
    """What an API's requests are about, and how to look at it; which requests count."""

    keys: Callable[[Any, Context], Iterable[Key]]
    state: Callable[[Key, Context], object] = states.nothing
    counts: Callable[[Any, Context], bool] = lambda request, context: True
    # For what consumers do as a matter of course, unless it goes back: a line every ten seconds.
    at_rate: bool = False
    # What the answer says was there before, for requests that name it by a filter.
    gone: Callable[[Any], object] | None = None


def _named(kind: str, field: str, name: str = "name") -> Callable[[Any, Context], Iterator[Key]]:
    def keys(request: Any, context: Context) -> Iterator[Key]:
        return ((kind, str(getattr(each, name))) for each in getattr(request, field))

    return keys


def _is_of_a_client(request: Any, context: Context) -> bool:
    return not context.connection.principal.is_broker


def _is_of_no_member(request: Any, context: Context) -> bool:
    """Offsets that no member commits: an administrator sets them, or a consumer without a group."""
    return not request.member_id and request.generation_id_or_member_epoch < 0


def _is_two_phase(request: Any, context: Context) -> bool:
    """Whether an outside coordinator decides on transactions (KIP-939), which needs a permission of
    its own. A producer that begins, or fences an earlier one of its id, does so of right."""
    return bool(request.enable2_pc or request.keep_prepared_txn)


AUDITED: Final[dict[str, Row]] = {
    "CreateTopics": Row(_named("Topic", "topics"), states.topic),
    "DeleteTopics": Row(states.topics_to_delete, states.topic),
    "CreatePartitions": Row(_named("Topic", "topics"), states.topic),
    "DeleteRecords": Row(states.partitions_of("topics", "name"), states.log_start),
    "AlterConfigs": Row(states.config_resources, states.configs),
    "IncrementalAlterConfigs": Row(states.config_resources, states.configs),
    "ElectLeaders": Row(states.partitions_of("topic_partitions", "topic"), states.leader),
    "AlterPartitionReassignments": Row(states.partitions_of("topics", "name"), states.replicas),
    "AlterReplicaLogDirs": Row(states.moved_replicas),
    "UnregisterBroker": Row(lambda request, _: [("Broker", str(request.broker_id))], states.broker),
    "UpdateFeatures": Row(_named("Feature", "feature_updates", "feature")),
    "DeleteGroups": Row(
        lambda request, _: (("Group", each) for each in request.groups_names), states.group
    ),
    "OffsetDelete": Row(states.offsets_of_group, states.offset),
    "OffsetCommit": Row(states.offsets_of_group, states.offset, _is_of_no_member, at_rate=True),
    "LeaveGroup": Row(states.leaving_members, states.member, states.is_of_others),
    "InitProducerId": Row(
        lambda request, _: [("TransactionalId", request.transactional_id or "")],
        counts=_is_two_phase,
        at_rate=True,
    ),
    "WriteTxnMarkers": Row(_named("Producer", "markers", "producer_id"), counts=_is_of_a_client),
    "AlterUserScramCredentials": Row(states.users, states.credentials),
    "CreateAcls": Row(states.created_acls, states.acl),
    "DeleteAcls": Row(states.acl_filters, gone=states.deleted_acls),
    "AlterClientQuotas": Row(states.quota_entities, states.quota),
}


def audited_route(route: Route, api_name: str, audit: AuditLog) -> Route:
    """The route of an API whose requests the audit log names; the same route for any other."""
    row = AUDITED.get(api_name)
    if row is None:
        return route
    inner = route.handler

    def handler(request: Any, context: Context) -> Any:
        if not row.counts(request, context):
            return inner(request, context)
        return _Audited(row, audit, context).serve(inner, request)

    return replace(route, handler=handler)


class _Audited:
    """One request on its way to its line in the log."""

    def __init__(self, row: Row, audit: AuditLog, context: Context) -> None:
        self._row = row
        self._audit = audit
        self._context = context
        self._gone: object = None
        # What the request is about, in words.
        self._names: list[str] = []

    async def serve(self, inner: Callable[[Any, Context], Any], request: Any) -> Any:
        """Serve the request as ever, and record it exactly once, whatever becomes of it."""
        context, row, audit = self._context, self._row, self._audit
        if audit.fail_closed and not await audit.is_writable():
            raise _refusal()
        pace = context.pace()
        keys: list[Key] = []
        for key in row.keys(request, context):
            keys.append(key)
            self._names.append(states.text_of(key))
            await pace.step()
        asked = states.shown(request)
        before = await self._states(keys)
        try:
            answer = await _full(inner(request, context), context)
        except BaseException as error:
            # It may have been done all the same: nobody saw an answer.
            errors: list[dict[str, object]] = [{"error": type(error).__name__}]
            for event in self._events(asked, before, ("unknown", errors)):
                self._record(event, keys, before)
            raise
        after = await self._states(keys)
        results = []
        for each in _results(answer, ""):
            if each is not None:
                results.append(each)
            await pace.step()
        outcome = _outcome_of(results, answer)
        await context.turns.pause()
        if row.gone is not None:
            self._gone = row.gone(answer)
        changed = None if after == before else after
        for event in self._events(asked, before, outcome, changed):
            await audit.has_room(event)
            self._record(event, keys, before, changed)
        if audit.fail_closed and not await audit.settle():
            # It is done, but must not be acknowledged.
            raise _refusal()
        return answer

    async def _states(self, keys: Iterable[Key]) -> dict[str, object]:
        found, pace = {}, self._context.pace()
        for key, name in zip(keys, self._names, strict=True):
            state = self._row.state(key, self._context)
            if state is not None:
                found[name] = state
            await pace.step()
        return found

    def _record(
        self,
        event: AuditEvent,
        keys: list[Key],
        before: dict[str, object],
        after: dict[str, object] | None = None,
    ) -> None:
        if self._row.at_rate and not _goes_back(before, after or {}):
            group = keys[0][:2] if keys else ()
            self._audit.record_at_rate(event, (event.action, event.principal, *group))
        else:
            self._audit.record(event)

    def _events(
        self,
        asked: object,
        before: dict[str, object],
        outcome: tuple[str, list[dict[str, object]]],
        after: dict[str, object] | None = None,
    ) -> Iterator[AuditEvent]:
        """The request, in as many events as it takes; `after` None says that nothing is known to
        have changed.
        """
        names = self._names
        told, errors = outcome
        context = self._context
        header, connection = context.header, context.connection
        lines = range(0, max(1, len(names)), _KEYS_IN_A_LINE)
        for start in lines:
            some = names[start : start + _KEYS_IN_A_LINE]
            details: dict[str, object] = {
                "client_id": header.client_id,
                "listener": connection.listener.name,
                "asked": asked if start == 0 else None,
                "errors": errors if start == 0 else None,
            }
            if len(lines) > 1:
                details["part"] = f"{start // _KEYS_IN_A_LINE + 1} of {len(lines)}"
            yield AuditEvent(
                context.api.name,
                context.principal,
                connection.host,
                some,
                told,
                self._gone or {name: before[name] for name in some if name in before},
                {name: after[name] for name in some if name in after} if after else None,
                context.request_id,
                details=details,
            )


def _refusal() -> Exception:
    """Ends the connection: not every answer has a place for an error of the whole request."""
    from tidelog.server.dispatch import CloseConnection

    return CloseConnection(_REFUSAL)


def _goes_back(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Whether an offset was set to an earlier one, which no consumer does as a matter of course."""
    for name, was in before.items():
        now = after.get(name, was)
        if isinstance(was, int) and isinstance(now, int) and now < was:
            return True
    return False


async def _full(answer: Any, context: Context) -> Any:
    """The answer, whatever a handler gave, with lists that can be walked over twice."""
    if type(answer) is GeneratorType:
        answer = await context.complete(answer)
    elif isinstance(answer, (asyncio.Future, CoroutineType)):
        answer = await answer
    if is_dataclass(answer):
        pace = context.pace()
        for field in fields(answer):
            value = getattr(answer, field.name)
            if isinstance(value, LazyList):
                elements = []
                for each in value:
                    elements.append(each)
                    await pace.step()
                setattr(answer, field.name, elements)
    return answer


def _outcome_of(
    results: Iterable[tuple[str, Any]], answer: object
) -> tuple[str, list[dict[str, object]]]:
    """`ok`, `denied`, `failed` or, where some of it was done, `partial`; and the errors."""
    errors: list[dict[str, object]] = []
    done = denied = failed = 0
    for path, result in results:
        if not result.error_code:
            done += result is not answer
            continue
        code = _code_name(result.error_code)
        failed += 1
        denied += code.endswith("_AUTHORIZATION_FAILED")
        if len(errors) < _ERRORS_SHOWN:
            message = getattr(result, "error_message", None)
            errors.append({"of": path, "code": code, "message": states.shown(message)})
    if not failed:
        return "ok", errors
    if done:
        return "partial", errors
    return ("denied" if denied == failed else "failed"), errors


def _results(value: object, path: str) -> Iterator[tuple[str, Any] | None]:
    """Everything in an answer that has an error code, with the names on the way to it.

    None stands for anything else that was looked at, so that the walk can pause there.
    """
    if isinstance(value, list):
        for each in value:
            yield from _results(each, path)
    elif is_dataclass(value) and not isinstance(value, type):
        own = [str(getattr(value, name)) for name in states.NAMING if getattr(value, name, None)]
        here = "/".join([path, *own] if path else own)
        index = getattr(value, "partition_index", getattr(value, "partition_id", None))
        if index is not None:
            here = f"{here}-{index}"
        yield (here, value) if hasattr(value, "error_code") else None
        for field in fields(value):
            child = getattr(value, field.name)
            if isinstance(child, list):
                yield from _results(child, here)


@cache
def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
