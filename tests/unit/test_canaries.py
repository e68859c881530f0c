"""The watch for secrets in the whole suite finds those that are planted, wherever they are."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from tests.canaries import Canaries
from tidelog.config import BrokerConfig
from tidelog.security.scram import SCRAM_SHA_256
from tidelog.testing import Broker

PLANTED = "planted-5ecret-17"
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


@pytest.fixture(autouse=True)
def _known(canaries: Canaries) -> None:
    BrokerConfig({JAAS: f'x.PlainLoginModule required user_eve="{PLANTED}";'})


def test_a_password_is_learned_from_settings_files_and_credentials(
    canaries: Canaries, tmp_path: Path
) -> None:
    before = canaries.count
    BrokerConfig({"metrics.users": "page:learned-1-page", "zookeeper.digest": "u:learned-2-zk"})
    SCRAM_SHA_256.salt_password(b"learned-3-scram", b"salt of 16 bytes", 4096)
    file = tmp_path / "client.properties"
    file.write_text('sasl.jaas.config=x required username="a" password="learned-4-file";\n')
    subprocess.run([sys.executable, "-c", "", str(file)], check=True)
    for short in ("word", "secret", "12345"):
        canaries.learn(short)
    assert canaries.count == before + 4
    canaries.look("here", "learned-1-page learned-5")
    assert len(canaries.take_leaks()) == 1


def test_a_planted_secret_is_found_in_the_log_and_in_tracebacks(canaries: Canaries) -> None:
    log = logging.getLogger("tidelog.planted")
    log.warning("settings=%r", {"password": PLANTED})
    try:
        raise ValueError(PLANTED)
    except ValueError:
        log.exception("failed")
    assert [each.partition(":")[0] for each in canaries.take_leaks()] == [
        "log of tidelog.planted"
    ] * 2


def test_a_planted_secret_is_found_in_arguments_and_output(
    canaries: Canaries, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-c", "", "tidelog", PLANTED], check=True)
    program = f"print('tidelog {PLANTED[:9]}' + '{PLANTED[9:]}')"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    with (tmp_path / "log").open("wb") as log:
        subprocess.run([sys.executable, "-c", program], check=True, stdout=log)
    found = [each.partition(":")[0] for each in canaries.take_leaks()]
    assert found == ["command line", "output of a program", "output of a program in log"]


def test_a_planted_secret_is_found_in_the_audit_log_of_a_broker(
    canaries: Canaries, tmp_path: Path
) -> None:
    with Broker(data_dir=str(tmp_path)):
        (tmp_path / "audit").mkdir(exist_ok=True)
        (tmp_path / "audit" / "planted").write_text(json.dumps({"password": PLANTED}))
    assert [each.partition(":")[0] for each in canaries.take_leaks()] == ["audit log planted"]
