"""The house rules that ruff and mypy do not hold: file sizes, no leftovers, no dead modules."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tidelog"
LINES_MAX = 500
EXEMPT_FROM_SIZE = ("/protocol/messages/", "/_kernels/")
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", pattern],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    files = [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]
    assert files, f"no file matches {pattern}"
    return files


def test_no_python_file_is_longer_than_it_may_be() -> None:
    long = {}
    for path in tracked("*.py"):
        if not any(part in str(path) for part in EXEMPT_FROM_SIZE):
            count = len(path.read_text().splitlines())
            if count > LINES_MAX:
                long[str(path.relative_to(ROOT))] = count
    assert long == {}


def test_no_leftovers_in_the_source() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for place in ("src/*.py", "examples/*.py", "bench/*.py")
        for path in tracked(place)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LEFTOVERS.search(line)
    ]
    assert found == []


def test_private_handles_of_spark_are_used_in_one_module() -> None:
    handle = re.compile(r"\._(jvm|jdf|jsc|jsparkSession|gateway)\b")
    users = {path.name for path in tracked("src/*.py") if handle.search(path.read_text())}
    assert users == {"jvm.py"}


def test_every_module_is_imported_or_an_entry_point() -> None:
    text = "\n".join(path.read_text() for path in tracked("*.py"))
    text += (ROOT / "pyproject.toml").read_text() + (ROOT / "Makefile").read_text()
    dead = []
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        if parts[-1] in ("__init__", "__main__"):
            continue
        dotted = ".".join(parts)
        by_parent = re.compile(
            rf"from {re.escape('.'.join(parts[:-1]))} import [^\n]*\b{parts[-1]}\b"
        )
        # Also as "module:function", which is imported on first use.
        by_name = re.compile(rf"""["']{re.escape(parts[-1])}["':]""")
        if dotted not in text and not by_parent.search(text) and not by_name.search(text):
            dead.append(dotted)
    assert dead == []


def test_no_file_names_a_registry_or_a_path_of_this_machine() -> None:
    registries = "|".join(
        (
            "pypi" + r"\.org",
            "files.python" + "hosted",
            "registry.npm" + "js",
            "repo1.maven",
            "proxy.golang",
        )
    )
    homes = "|".join(("/ro" + "ot/", "/wo" + "rk/"))
    pattern = re.compile(f"{registries}|{homes}")
    found = []
    for path in tracked("*"):
        if path.suffix in (".png", ".bin", ".svg") or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    assert found == []


def test_broker_and_cli_import_neither_pyarrow_nor_pyspark() -> None:
    program = (
        "import sys, tidelog.server.broker, tidelog.cli.main, tidelog.testing.broker;"
        "heavy = {'pyarrow', 'pyspark', 'numpy', 'pandas', 'kazoo', 'hypothesis'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_import_tidelog_imports_nothing_else() -> None:
    program = (
        "import sys; before = set(sys.modules); import tidelog;"
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('tidelog')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "['tidelog', 'tidelog.version']"
