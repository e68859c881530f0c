"""`tidelog`, with one API that fails, and whose error holds all that a broker knows of secrets.

What the error shows goes to the log with its traceback, as that of any fault would.
"""

from __future__ import annotations

import sys
from typing import Any

from tidelog.cli.main import main
from tidelog.security.jaas import parse_jaas
from tidelog.server.handlers import group_admin


def _fail(request: object, context: Any) -> None:
    security = context.connection.listener.security
    config = security._config
    text = config.for_listener(context.connection.listener.name, "sasl.jaas.config", "PLAIN")
    known = [config, security, security.tls(), context, context.connection, parse_jaas(str(text))]
    try:
        raise ValueError(f"inner {known!r}")
    except ValueError as error:
        raise RuntimeError(f"CRASH {known!r} {request!r}") from error


if __name__ == "__main__":
    group_admin.list_groups = _fail  # type: ignore[assignment]
    main(sys.argv[1:])
