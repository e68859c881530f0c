"""Links between pages lead somewhere, and the file map knows every package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.docs.pages import ROOT, blocks, named, pages, prose

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        found.add(kept.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", pages(), ids=named)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    broken = []
    for target in _LINK.findall(prose(page)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


def test_the_pages_that_others_start_from_are_there() -> None:
    names = {named(page) for page in pages()}
    assert {"README.md", "ARCHITECTURE.md", "docs/start.md", "docs/promises.md"} <= names


def file_map() -> str:
    (found,) = [
        block.text for block in blocks(ROOT / "ARCHITECTURE.md") if "src/tidelog/" in block.text
    ]
    return found


def test_every_package_and_top_level_module_is_in_the_file_map() -> None:
    source = ROOT / "src" / "tidelog"
    packages = [each.parent.relative_to(source) for each in source.rglob("__init__.py")]
    modules = [each.name for each in source.glob("*.py") if each.name != "__init__.py"]
    listed = set(file_map().split())
    missing = [f"{each}/" for each in packages if each.parts and f"{each}/" not in listed]
    missing += [each for each in modules if each not in listed]
    assert missing == []


def test_the_file_map_names_nothing_that_is_not_there() -> None:
    source = ROOT / "src" / "tidelog"
    gone: list[str] = []
    for line in file_map().splitlines():
        indent = len(line) - len(line.lstrip())
        if indent > 2:
            continue
        base = source if indent == 2 else ROOT
        names = re.match(r"(?:[\w/.]+(?:/|\.py) ?)+", line.lstrip())
        assert names is not None, line
        gone += [name for name in names[0].split() if not (base / name).exists()]
    assert gone == []
