"""How the command line speaks of errors: a sentence, a hint, an exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from tidelog.errors import ConfigError, ErrorCode, KafkaError, TidelogError

if TYPE_CHECKING:
    from tidelog.client.faults import NetworkError, SecurityError, UnreadableBatchError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_UNKNOWN_TOPIC = 4
EXIT_INTERRUPTED = 130

_DENIALS = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_HINTS = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "--if-not-exists makes this no error",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a name has letters, digits, '.', '_' and '-', at most 249",
    ErrorCode.INVALID_PARTITIONS: "partitions can be added, never taken away",
    ErrorCode.INVALID_REPLICATION_FACTOR: "`tidelog cluster info` shows how many brokers there are",
    ErrorCode.INVALID_CONFIG: "`tidelog topic config TOPIC --all` lists the names and values",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes with `tidelog topic config TOPIC --set`",
    ErrorCode.OFFSET_OUT_OF_RANGE: "`tidelog topic describe TOPIC` shows which offsets there are",
    ErrorCode.INVALID_RECORD: "a compacted topic takes only records with a key",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "try another codec with -z",
    ErrorCode.NOT_ENOUGH_REPLICAS: "`tidelog topic describe TOPIC` shows who is in sync",
    ErrorCode.REQUEST_TIMED_OUT: "try again, or with a larger --timeout",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first; `tidelog group members GROUP` shows them",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "`tidelog cluster info` lists the brokers",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "`tidelog cluster info` lists the brokers",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "`tidelog cluster reassign` shows what is being moved",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "`tidelog topic describe TOPIC` shows the replicas:"
    " the first one is away, or not in sync yet",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no broker that has a replica is there: start one",
    ErrorCode.NOT_CONTROLLER: "`tidelog cluster health` says whether there is a controller",
    ErrorCode.SECURITY_DISABLED: "set authorizer.class.name in the brokers' settings",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker cannot write: look at its disk and its log",
}


def hint_for(code: ErrorCode) -> str:
    """What to do about an error that a broker answers."""
    if code in _DENIALS:
        return _denied_hint()
    return _HINTS.get(code, "the broker's log may say more")


def _denied_hint() -> str:
    """Who is denied, as far as this side knows, and how to find out why."""
    from tidelog.cli.profile import current_profile

    security = current_profile().security
    known, who = "", "PRINCIPAL"
    if security.sasl is not None and security.sasl.username:
        who = security.sasl.username
        known = f"the broker knows you as User:{who}; "
    elif security.sasl is None and security.tls is None:
        known = "the broker does not know you: give --config client.properties; "
    return f"{known}an administrator sees which rule is missing by `tidelog acl explain {who}`"


class CliError(click.ClickException):
    """An error with a hint that says what to do about it."""

    def __init__(self, message: str, hint: str, status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status


def explain(error: TidelogError) -> CliError:
    """Any fault of Tidelog in the words of the command line."""
    # Imported here: `--help` and `--version` need no client.
    from tidelog.client.faults import (
        ConnectError,
        HandshakeError,
        NetworkError,
        SecurityError,
        UnreadableBatchError,
    )
    from tidelog.client.operation import UnknownTopicError

    text = str(error)
    if isinstance(error, UnknownTopicError):
        hint = "`tidelog topic list` shows what is there, `tidelog topic create` makes one"
        return CliError(text, hint, EXIT_UNKNOWN_TOPIC)
    if isinstance(error, HandshakeError):
        return CliError(text, "`tidelog doctor` finds out more", EXIT_UNREACHABLE)
    if isinstance(error, ConnectError):
        hint = "is a broker running? `tidelog up` starts one; `tidelog doctor` finds out more"
        return CliError(f"no broker reached at {text}", hint, EXIT_UNREACHABLE)
    if isinstance(error, NetworkError):
        return CliError(text, _lost_hint(error), EXIT_UNREACHABLE)
    if isinstance(error, SecurityError):
        return CliError(text, _security_hint(error))
    if isinstance(error, UnreadableBatchError):
        return CliError(text, way_past(error))
    if isinstance(error, KafkaError):
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return CliError(text, "`tidelog topic list` shows what is there", EXIT_UNKNOWN_TOPIC)
        return CliError(text, hint_for(error.code))
    if isinstance(error, ConfigError) and (file := _profile_file()):
        return CliError(text, f"correct {file}", EXIT_USAGE)
    return CliError(text, "`tidelog doctor` finds out more")


def _profile_file() -> str:
    from tidelog.cli.profile import current_profile

    return current_profile().file or ""


def _lost_hint(error: NetworkError) -> str:
    """A listener that is secured drops a client that is not; the client sees no more than that."""
    from tidelog.cli.profile import current_profile
    from tidelog.client.security import OPEN

    security, more = current_profile().security, "`tidelog doctor` finds out more"
    if "closed the connection" not in error.reason and "in TLS" not in error.reason:
        return more
    if security == OPEN:
        return f"this listener may need TLS or SASL: give --config client.properties; {more}"
    if security.tls is None:
        return f"this listener may need TLS: try security.protocol=SASL_SSL; {more}"
    if security.sasl is None:
        return f"this listener may need SASL: try security.protocol=SASL_SSL; {more}"
    return more


def _security_hint(error: SecurityError) -> str:
    from tidelog.client.faults import MechanismError, TlsError

    if isinstance(error, TlsError):
        return error.hint
    if not isinstance(error, MechanismError):
        return "check the user and the password or token in the file of --config"
    if error.code is ErrorCode.ILLEGAL_SASL_STATE:
        return "set security.protocol to PLAINTEXT or SSL, or use another listener"
    return f"set sasl.mechanism to {' or '.join(error.offered) or 'another one'}"


def way_past(error: UnreadableBatchError, group: str | None = None) -> str:
    """The commands that go on behind a batch that cannot be read."""
    place = f"{error.partition.topic} -p {error.partition.partition}"
    seek = f"tidelog group seek {group or 'GROUP'} --topic {place} --to {error.next_offset}"
    moved = f"`{seek} --execute` moves {'the' if group else 'a'} group past it"
    if group:
        return moved
    return f"`tidelog consume {place} -o {error.next_offset}` goes on behind it; {moved}"


def show(error: click.ClickException) -> None:
    """Write an error and its hint to stderr."""
    hint = getattr(error, "hint", None)
    if hint is None:
        context = getattr(error, "ctx", None)
        hint = f"{context.command_path if context else 'tidelog'} --help"
    message = error.format_message()
    sys.stderr.write(f"{paint('error:', '31', sys.stderr)} {message}\n")
    sys.stderr.write(f"{paint('hint:', '36', sys.stderr)} {hint}\n")


def paint(text: str, colour: str, stream: object) -> str:
    """Text in a colour, where a terminal shows it and NO_COLOR does not forbid it."""
    terminal = getattr(stream, "isatty", lambda: False)()
    if not terminal or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"
