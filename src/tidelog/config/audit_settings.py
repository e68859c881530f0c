"""The settings of the audit log."""

from __future__ import annotations

from typing import Final

from tidelog.config.setting import boolean, items, long
from tidelog.config.topic_settings import MIB

AUDIT_EVENTS: Final = ("admin", "authentication", "denied", "decision")

AUDIT_SETTINGS: Final = (
    boolean(
        "audit.log.enable",
        True,
        "Whether who did what is written to the audit log, in the directory `audit` of the data "
        "directory.",
        kafka=False,
    ),
    items(
        "audit.log.events",
        list(AUDIT_EVENTS),
        "What the audit log has: `admin` requests, log-ins (`authentication`), requests that were "
        "`denied`, and what a broker decided about data that was lost or put aside (`decision`).",
        choices=AUDIT_EVENTS,
        kafka=False,
    ),
    boolean(
        "audit.log.fail.closed",
        False,
        "Whether admin requests are refused while the audit log cannot be written, on a full disk "
        "say. Then an admin request is answered only once its line is durable.",
        kafka=False,
    ),
    long(
        "audit.log.segment.bytes",
        16 * MIB,
        "How large a file of the audit log gets before the next one begins.",
        minimum=1024,
        kafka=False,
    ),
    long(
        "audit.log.retention.bytes",
        1024 * MIB,
        "How much of the audit log is kept. The oldest files are removed beyond that, and the log "
        "says so.",
        minimum=1024,
        kafka=False,
    ),
)
