"""The settings of the status pages: where they are served, and to whom."""

from __future__ import annotations

from typing import Final

from tidelog.config.checks import check_host_port
from tidelog.config.setting import boolean, items, password, text

PAGE_SETTINGS: Final = (
    text(
        "metrics.listener",
        "",
        "HOST:PORT of /metrics, /healthz and /readyz; empty for none. Port 0 takes a free one.",
        check=check_host_port,
        kafka=False,
    ),
    items(
        "metrics.hosts",
        [],
        "Names under which /metrics and /readyz may be asked for, besides any IP address, "
        "`localhost`, and the names in `metrics.listener` and `advertised.listeners`; `*` allows "
        "every name. Without this check a page in a browser could read them.",
        kafka=False,
    ),
    text(
        "metrics.security.protocol",
        "PLAINTEXT",
        "`SSL` serves the pages over TLS alone, with the settings `listener.name.metrics.ssl.*` "
        "or, where those are not set, `ssl.*`.",
        choices=("PLAINTEXT", "SSL"),
        kafka=False,
    ),
    password(
        "metrics.users",
        None,
        "Who may read the pages, as `NAME:PASSWORD`, parted by commas, by basic authentication. "
        "Beyond loopback that needs TLS. Without users everybody may.",
        kafka=False,
    ),
    boolean(
        "metrics.health.open",
        True,
        "Whether /healthz and /readyz answer without a password, as probes ask them.",
        kafka=False,
    ),
)
