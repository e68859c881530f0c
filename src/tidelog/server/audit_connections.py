"""What the audit log says of connections: who logged in, who failed to, what was denied to whom.

Clients bring these about as often as they like, so each kind is written at a rate, by who and from
where, and a line says how many it stands for. No log-in can push older lines out of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.security.authorizer import Operation, Resource
from tidelog.server.audit_log import ADMIN, AUTHENTICATION, DENIED, NOT_ADMIN, AuditEvent, AuditLog

if TYPE_CHECKING:
    from tidelog.server.connection import Connection
    from tidelog.server.context import RequestContext

_NAME_MAX = 256


def record_login(audit: AuditLog, connection: Connection) -> None:
    """A connection is authenticated, as its principal."""
    if audit.takes(AUTHENTICATION):
        principal = connection.principal.name
        event = _of_connection("Login", connection, principal, "ok", {})
        audit.record_at_rate(event, ("Login", principal, connection.host))


def record_failed_login(audit: AuditLog, connection: Connection, reason: str) -> None:
    """Somebody could not prove who they are."""
    if audit.takes(AUTHENTICATION):
        sasl = connection.sasl
        # Whom they said to be: a stranger's words, of any length.
        tried = "" if sasl is None else sasl.user[:_NAME_MAX]
        details: dict[str, object] = {"user": tried} if tried else {}
        details["reason"] = reason
        event = _of_connection("Login", connection, "", "failed", details)
        audit.record_at_rate(event, ("failed Login", connection.host))


def record_denial(context: RequestContext[Any], operation: Operation, resource: Resource) -> None:
    """A request was refused. Administrative ones have a line of their own that says so."""
    audit = context.audit
    if not audit.takes(DENIED) or context.api.name not in NOT_ADMIN:
        return
    connection = context.connection
    name = f"{resource.type.name.title().replace('_', '')}:{resource.name}"
    event = AuditEvent(
        context.api.name,
        context.principal,
        connection.host,
        (name,),
        "denied",
        request_id=context.request_id,
        kind=DENIED,
        details={
            "operation": operation.name,
            "client_id": context.header.client_id,
            "listener": connection.listener.name,
        },
    )
    # Not by name: a client could ask for ten thousand others.
    audit.record_at_rate(event, (event.action, event.principal, event.host, operation))


def record_auto_created(context: RequestContext[Any], names: Sequence[str]) -> None:
    """Topics were created because a client asked for them, without a request to create them."""
    if not names or not context.audit.takes(ADMIN):
        return
    context.audit.record(
        AuditEvent(
            "AutoCreateTopics",
            context.principal,
            context.connection.host,
            [f"Topic:{name}" for name in names],
            request_id=context.request_id,
            details={
                "client_id": context.header.client_id,
                "listener": context.connection.listener.name,
            },
        )
    )


def _of_connection(
    action: str, connection: Connection, principal: str, outcome: str, details: dict[str, object]
) -> AuditEvent:
    return AuditEvent(
        action,
        principal,
        connection.host,
        outcome=outcome,
        request_id=connection.peer,
        kind=AUTHENTICATION,
        details={"listener": connection.listener.name, **details},
    )
