"""The settings of the status pages: where they are served, and to whom."""

from __future__ import annotations

from typing import Final

from tidelog.config.checks import check_host_port
from tidelog.config.setting import boolean, items, password, text

PAGE_SETTINGS: Final = (
    text(
        "metrics.listener",
        "",
        "HOST:PORT of /metrics, /healthz and /readyz; empty for none. Port 0 selects a free port.",
        check=check_host_port,
        kafka=False,
    ),
    items(
        "metrics.hosts",
        [],
        "Host names that clients may use for /metrics and /readyz, besides any IP address,"
        " `localhost`, and the names in `metrics.listener` and `advertised.listeners`; `*` allows"
        " every name. Without this check a web page could read them through a browser.",
        kafka=False,
    ),
    text(
        "metrics.security.protocol",
        "PLAINTEXT",
        "`SSL` serves the pages only over TLS, with the settings `listener.name.metrics.ssl.*`"
        " or, if those are not set, `ssl.*`.",
        choices=("PLAINTEXT", "SSL"),
        kafka=False,
    ),
    password(
        "metrics.users",
        None,
        "Users that may read the pages with basic authentication, as `NAME:PASSWORD`, separated"
        " by commas. Beyond loopback this needs TLS. Without users everyone may read them.",
        kafka=False,
    ),
    boolean(
        "metrics.health.open",
        True,
        "Whether /healthz and /readyz answer without a password, for probes.",
        kafka=False,
    ),
)
