"""What is built can be installed and used: kernels compiled and, without a compiler, uncompiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_wheel_and_sdist_work_where_they_are_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "try_wheel.py", "--share-packages"],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    forms = dict(line.rsplit(maxsplit=5)[:2] for line in done.stdout.splitlines()[3:])
    assert forms == {"wheel": "compiled", "sdist, no compiler": "uncompiled"}, done.stdout
    assert list(tmp_path.iterdir()) == []
