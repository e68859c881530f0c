"""Markdown pages as the tests of this directory look at them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
_FENCE = re.compile(r"^(```+)(\w*)[^\n]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """One fenced block: the page it stands on, its language, its text."""

    page: Path
    language: str
    text: str


def pages() -> list[Path]:
    """Every Markdown page of the project, by name."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [ROOT / line for line in sorted(listed.stdout.splitlines()) if (ROOT / line).exists()]


def blocks(page: Path) -> list[Block]:
    return [Block(page, found[2], found[3]) for found in _FENCE.finditer(page.read_text())]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def spans(page: Path) -> list[str]:
    """What stands between single backticks, in prose; a span may be broken over two lines."""
    return _SPAN.findall(re.sub(r"(?<=\S)\n(?=\S)", " ", prose(page)))


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))
