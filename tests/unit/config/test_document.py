"""The reference of settings is what the table says."""

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.config.document import document, main
from tidelog.config.table import SETTINGS

ROOT = Path(__file__).parents[3]


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == document(), (
        "run: python -m tidelog.config.document --write docs/configuration.md"
    )


def test_every_setting_has_one_row() -> None:
    rows = [line.split("|")[1].split("`")[1] for line in document().splitlines() if "| `" in line]
    assert sorted(rows) == sorted(each.name for each in SETTINGS if not each.internal)


def test_the_page_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], document, "tidelog.config.document") == 0
    assert capsys.readouterr().out == document()
    path = tmp_path / "page.md"
    assert main(["--write", str(path)], document, "tidelog.config.document") == 0
    assert path.read_text(encoding="utf-8") == document()
    assert main(["--wrong"], document, "tidelog.config.document") == 2
    assert "usage" in capsys.readouterr().err


def test_loading_settings_imports_neither_yaml_nor_the_names_of_kafka() -> None:
    program = (
        "import sys; from tidelog.config import load; load(); "
        "print([n for n in ('yaml', 'difflib', 'asyncio', 'tidelog.config.kafka_names') "
        "if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    assert done.stdout == "[]\n"
