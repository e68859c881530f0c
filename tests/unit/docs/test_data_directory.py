"""The page for operators lists every file that a broker leaves in its data directory."""

from __future__ import annotations

from pathlib import Path

from tests.unit.docs.pages import ROOT
from tidelog.storage.data_dir import CLEANED_OFFSETS
from tidelog.testing import Broker


def test_every_file_of_a_data_directory_is_listed(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        pass
    page = (ROOT / "docs" / "operate.md").read_text()
    listing = page.partition("## The data directory\n\n```\n")[2].partition("```")[0]
    listed = {line.split()[0] for line in listing.splitlines()}
    found = {each.name for each in tmp_path.iterdir() if each.is_file()}
    # The first is written when a log was compacted; the others stand behind `metadata.db`.
    assert found | {CLEANED_OFFSETS} <= listed | {"metadata.db-wal", "metadata.db.lock"}
