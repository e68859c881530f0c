"""The Python on the pages runs: tests by pytest, programs against a broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.docs.pages import Block, blocks, named, pages
from tidelog.testing import Broker

# What stands on two pages is tried once.
SHOWN = list(
    {
        block.text: block
        for page in pages()
        for block in blocks(page)
        if block.language == "python"
    }.values()
)
TESTS = [block for block in SHOWN if "def test_" in block.text]
PROGRAMS = [block for block in SHOWN if "def test_" not in block.text]
DEFAULT_ADDRESS = "127.0.0.1:9092"


def title(block: Block) -> str:
    return f"{named(block.page)}:{block.text.strip().splitlines()[0]}"


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=False, cwd=directory, capture_output=True, text=True, timeout=120
    )


def test_there_is_python_to_try() -> None:
    assert len(TESTS) >= 1 and len(PROGRAMS) >= 3


@pytest.mark.parametrize("block", TESTS, ids=title)
def test_a_test_on_a_page_passes(block: Block, tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(block.text)
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."], tmp_path)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("block", PROGRAMS, ids=title)
def test_a_program_on_a_page_runs_and_prints(block: Block, tmp_path: Path) -> None:
    with Broker() as broker:
        text = block.text.replace(DEFAULT_ADDRESS, broker.bootstrap_servers)
        (tmp_path / "program.py").write_text(text)
        done = run([sys.executable, "program.py"], tmp_path)
    assert done.returncode == 0 and done.stdout.strip(), done.stdout + done.stderr
    if "one book" in block.text:
        assert "one book" in done.stdout
