"""The commands that the pages show for brokers that are there are run, one after the other.

What else the pages show is held to the command line alone, in `tests/unit/docs`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.unit.docs.pages import ROOT, blocks
from tidelog.testing import Cluster

# Each page goes on with what the one before it has left.
PAGES = (
    "README.md",
    "docs/start.md",
    "docs/groups.md",
    "docs/promises.md",
    "docs/compaction.md",
    "docs/operate.md",
    "docs/cluster.md",
)
# They start or move brokers, end by Ctrl-C alone, or need what a test does not have.
NOT_RUN = (
    "pip ",
    "make ",
    "tidelog up",
    "tidelog broker",
    "tidelog doctor",
    "tidelog consume orders -o end",
    "tidelog cluster move",
    "tidelog cluster restore",
)
BROKERS = 4


def commands(page: str) -> list[str]:
    """The lines of its shell blocks that can be run; the same one again is left out."""
    lines = [
        line.removeprefix("$ ")
        for block in blocks(ROOT / page)
        if block.language in ("sh", "bash", "shell")
        for line in block.text.splitlines()
    ]
    wanted = [each for each in lines if not each.startswith(NOT_RUN) and "zookeeper:" not in each]
    return list(dict.fromkeys(wanted))


def test_the_commands_on_the_pages_work(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {"auto.create.topics.enable": True}
    shown = [(page, command) for page in PAGES for command in commands(page)]
    assert len(shown) >= 25
    with Cluster(BROKERS, data_dir=tmp_path / "tidelog-data", settings=settings) as cluster:
        servers = {"TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
        for page, command in shown:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=tmp_path, env={**os.environ, **servers, "PATH": path},
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{page}: {command}\n{done.stdout}{done.stderr}"
