"""What the audit log says of a log-in that failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tidelog.server.audit_connections import record_failed_login
from tidelog.server.audit_log import AuditEvent


class Recorder:
    """Takes every event."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def takes(self, kind: str) -> bool:
        return kind == "authentication"

    def record_at_rate(self, event: AuditEvent, kind: object) -> None:
        self.events.append(event)


def failed(sasl: object) -> AuditEvent:
    recorder = Recorder()
    connection = SimpleNamespace(
        sasl=sasl, host="192.0.2.7", peer="192.0.2.7:1", listener=SimpleNamespace(name="SASL_SSL")
    )
    audit: Any = recorder
    record_failed_login(audit, connection, "the password is wrong")  # type: ignore[arg-type]
    (event,) = recorder.events
    return event


def test_a_failed_log_in_names_the_user_that_was_tried_and_vouches_for_nobody() -> None:
    event = failed(SimpleNamespace(user="admin"))
    assert (event.principal, event.outcome, event.host) == ("", "failed", "192.0.2.7")
    assert event.details["user"] == "admin"
    assert event.details["reason"] == "the password is wrong"


def test_a_name_of_any_length_does_not_make_a_line_of_any_length() -> None:
    assert failed(SimpleNamespace(user="x" * 60_000)).details["user"] == "x" * 256


def test_a_certificate_that_was_refused_has_no_name_to_show() -> None:
    assert "user" not in failed(None).details
