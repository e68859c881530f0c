"""What a start does not import, by name: a figure in milliseconds would be a matter of luck.

A module that comes back here costs every start and every test that starts a broker. Where it is
needed at a plain start, take it off the list; else import it where it is first used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = str(Path(__file__).parents[3] / "src")

_START = """
import os, signal, sys
from tidelog.config import load
from tidelog.server.process import run_broker

def started(broker):
    print(*sorted(sys.modules))
    os.kill(os.getpid(), signal.SIGTERM)

settings = {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}
run_broker(load(overrides=settings), started)
"""

# TLS, SASL, tokens, rules and the audit log: only a broker that is told to use them.
SECURITY = {
    "tidelog.security.acl_authorizer",
    "tidelog.security.audit_chain",
    "tidelog.security.certified",
    "tidelog.security.distinguished_name",
    "tidelog.security.jaas",
    "tidelog.security.oauth",
    "tidelog.security.pkcs12",
    "tidelog.security.plain",
    "tidelog.security.tls",
    "tidelog.security.token_keys",
    "tidelog.server.audit_file",
    "tidelog.server.audit_states",
    "tidelog.server.audited",
    "tidelog.server.first_user",
    "tidelog.server.peer_tls",
    "tidelog.server.secured_listener",
    "tidelog.server.tokens",
    "cryptography",
    "jwt",
}
# Other brokers, transactions, compaction, pages, messages: only a broker that is asked for them.
LATER = {
    "tidelog.client.channel",
    "tidelog.client.connection",
    "tidelog.cluster.peer",
    "tidelog.coordinators.transactions.records",
    "tidelog.coordinators.transactions.shard",
    "tidelog.coordinators.transactions.transaction",
    "tidelog.replication.fetch_core",
    "tidelog.replication.fetching",
    "tidelog.server.handlers",
    "tidelog.server.http",
    "tidelog.server.pages",
    "tidelog.storage.compaction",
    "tidelog.storage.compaction_filter",
    "kazoo",
    "tempfile",
    "yaml",
}
# What every client asks for is made ready as soon as the broker serves.
_OF_EVERY_CLIENT = ("api_versions", "metadata", "produce", "fetch")
WARMED = {f"tidelog.protocol.messages.{name}" for name in _OF_EVERY_CLIENT}


def test_a_plain_start_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _START, str(tmp_path / "data")],
        env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    imported = set(run.stdout.split())
    assert "tidelog.server.listener_security" in imported
    assert imported & SECURITY == set()
    assert imported & LATER == set()
    messages = {name for name in imported if name.startswith("tidelog.protocol.messages.")}
    assert messages <= WARMED
