"""`tidelog broker --bootstrap-user`: the first administrator of a cluster that lets nobody in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess
from tidelog.client.admin import describe_cluster
from tidelog.client.blocking import Client
from tidelog.client.faults import AuthenticationError
from tidelog.client.security import read_security
from tidelog.client.settings import ClientSettings

PASSWORD = "canary of the first user"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "authorizer.class.name": "acl",
    "super.users": "User:admin",
}


def cluster_id(servers: str, mechanism: str, user: str, password: str) -> str | None:
    security = read_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
    )
    with Client(servers, ClientSettings.impatient("first", 10_000, security)) as client:
        return client.run(describe_cluster(client.cluster)).cluster_id


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path / "data", SETTINGS)
    yield made
    made.kill()


def test_the_first_user_logs_in_and_its_password_is_nowhere(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    arguments = ("--bootstrap-user", "admin", "--bootstrap-password-file", str(file))
    broker.start(*arguments)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert cluster_id(broker.bootstrap_servers, mechanism, "admin", PASSWORD)
    with pytest.raises(AuthenticationError):
        cluster_id(broker.bootstrap_servers, "SCRAM-SHA-256", "admin", "wrong")
    with pytest.raises(AuthenticationError):
        cluster_id(broker.bootstrap_servers, "SCRAM-SHA-256", "nobody", PASSWORD)
    line = Path(f"/proc/{broker.pid}/cmdline").read_bytes()
    environment = Path(f"/proc/{broker.pid}/environ").read_bytes()
    assert PASSWORD.encode() not in line + environment
    assert PASSWORD not in broker.log_text()
    assert broker.terminate() == 0
    # A user that exists keeps its password, whatever the file says by now.
    file.write_text("another one\n")
    broker.start(*arguments)
    assert cluster_id(broker.bootstrap_servers, "SCRAM-SHA-256", "admin", PASSWORD)
    assert "user admin exists" in broker.log_text()
    assert broker.terminate() == 0


def test_a_first_user_without_a_password_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidelog", "broker", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        [*command, "--bootstrap-user", "admin"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "TIDELOG_BOOTSTRAP_PASSWORD" in done.stderr
    assert not (tmp_path / "data").exists()
