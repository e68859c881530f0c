"""How the kernels are built: an absent compiler is no failure, unless one is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.unit.kernels.forms import FORMS, PLAIN, SOURCE
from tidelog import _kernels
from tidelog._kernels import batch_walk, records

ROOT = Path(__file__).resolve().parents[3]


def test_the_plain_form_is_the_source() -> None:
    assert PLAIN.__file__ == str(SOURCE)
    assert str(_kernels.records.__file__).endswith(".py") is not _kernels.COMPILED
    assert ("compiled" in FORMS) is _kernels.COMPILED


def test_compiled_kernels_are_not_older_than_their_source() -> None:
    """If this fails: pip install --no-deps --no-build-isolation -e ."""
    compiled_from = {records: {"records", "memory"}, batch_walk: {"batch_walk", "batch_rows"}}
    for kernel, stems in compiled_from.items():
        built = Path(str(kernel.__file__)).stat().st_mtime
        sources = [path for kind in ("*.py", "*.pxd") for path in SOURCE.parent.glob(kind)]
        newest = max(path.stat().st_mtime for path in sources if path.stem in stems)
        assert not _kernels.COMPILED or built >= newest


def test_all_kernels_are_compiled_or_none() -> None:
    kernels = (records, batch_walk)
    assert {str(each.__file__).endswith(".py") for each in kernels} == {not _kernels.COMPILED}


def test_kernels_are_compiled_where_that_is_required() -> None:
    assert _kernels.COMPILED or os.environ.get("TIDELOG_REQUIRE_KERNELS") != "1"


def build(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "lib"],
        cwd=directory, capture_output=True, text=True, check=False,
        env=os.environ | {"TIDELOG_REQUIRE_KERNELS": "0"} | environment,
    )  # fmt: skip


def test_without_a_compiler_the_build_passes_unless_kernels_are_required(tmp_path: Path) -> None:
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(SOURCE.parent, tmp_path / "src/tidelog/_kernels", ignore=ignored)
    for name in ("__init__.py", "version.py"):
        shutil.copy(SOURCE.parents[1] / name, tmp_path / "src/tidelog")
    for name in ("README.md", "LICENSE", "NOTICE"):
        (tmp_path / name).touch()
    without = build(tmp_path, CC="false")
    assert without.returncode == 0, without.stderr
    assert not list(tmp_path.rglob("*.so"))
    required = build(tmp_path, CC="false", TIDELOG_REQUIRE_KERNELS="1")
    assert required.returncode != 0
    assert "false" in required.stderr
