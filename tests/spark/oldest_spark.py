"""The oldest PySpark that is promised, in an environment of its own.

PySpark is fetched once, into the cache beside the peers; every other package is the one that runs
the tests, so the environment itself is made in an instant.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from bench.peers.cache import fetched
from tests.spark.cluster import ROOT

REQUIREMENTS = ROOT / "requirements" / "spark-floor.txt"


def oldest_version() -> str:
    """The version that the lock file names."""
    lines = REQUIREMENTS.read_text().splitlines()
    (pinned,) = (line for line in lines if line.startswith("pyspark=="))
    return pinned.removeprefix("pyspark==").split()[0]


def make_environment(directory: Path) -> Path:
    """A virtual environment with that PySpark; its interpreter."""
    packages = fetched(f"pyspark-{oldest_version()}", _install)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    # Looked through in this order: of two versions of a package the first is imported.
    paths = f"{packages}\n{sysconfig.get_path('purelib')}\n"
    (Path(done.stdout.strip()) / "packages.pth").write_text(paths)
    return python


def _install(directory: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    options = ["--require-hashes", "-r", str(REQUIREMENTS), "--target", str(directory)]
    done = subprocess.run(
        [*install, *options], capture_output=True, text=True, env=_without_pythonpath()
    )
    if done.returncode:
        raise RuntimeError(f"PySpark was not installed:\n{done.stdout}{done.stderr}")


def _without_pythonpath() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
