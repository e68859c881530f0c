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
        "Whether the broker writes an audit log of who did what, in the directory `audit` of the"
        " data directory.",
        kafka=False,
    ),
    items(
        "audit.log.events",
        list(AUDIT_EVENTS),
        "What the audit log records: `admin` requests, logins (`authentication`), `denied`"
        " requests, and a broker's decisions about data that was lost or set aside (`decision`).",
        choices=AUDIT_EVENTS,
        kafka=False,
    ),
    boolean(
        "audit.log.fail.closed",
        False,
        "Whether admin requests are refused while the audit log cannot be written, for example"
        " because the disk is full. An admin request is then answered only once its line is"
        " durable.",
        kafka=False,
    ),
    long(
        "audit.log.segment.bytes",
        16 * MIB,
        "The size at which an audit log file is closed and the next one begins.",
        minimum=1024,
        kafka=False,
    ),
    long(
        "audit.log.retention.bytes",
        1024 * MIB,
        "How much of the audit log is kept. Beyond that the oldest files are removed, and the log"
        " says so.",
        minimum=1024,
        kafka=False,
    ),
)
