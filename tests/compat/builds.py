"""Builds what the drivers need, outside the tree, once for each state of their sources.

Under ``$XDG_CACHE_HOME/tidelog/compat`` a directory named by client and hash of the sources: a
second run finds it and builds nothing. A build happens under a lock in a directory with another
name that is renamed when it is whole, so any number of runs may ask at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

DRIVERS = Path(__file__).parent / "drivers"
BUILD_TIMEOUT_S = 600.0
_NOT_SOURCES = shutil.ignore_patterns("node_modules", "target", "__pycache__")


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "tidelog" / "compat"


def _sources_hash(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in sources.rglob("*") if path.is_file()):
        name = path.relative_to(sources)
        if not {"node_modules", "target"} & set(name.parts):
            digest.update(str(name).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def build(name: str, language: str, command: Sequence[str]) -> Path:
    """The directory in which `command` built the sources of drivers/`language`."""
    sources = DRIVERS / language
    home = _cache() / f"{name}-{_sources_hash(sources)}"
    if home.is_dir():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            _build_in_place(sources, home, command)
    return home


def _build_in_place(sources: Path, home: Path, command: Sequence[str]) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        shutil.copytree(sources, partial, ignore=_NOT_SOURCES, dirs_exist_ok=True)
        done = subprocess.run(
            command,
            cwd=partial,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed in {sources}:\n{done.stdout[-8000:]}")
        partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def python_driver(module: str) -> list[str]:
    return [sys.executable, "-m", f"tests.compat.drivers.python.{module}"]


def kafka_python_driver() -> list[str]:
    """With the packages that kafka-python compresses with, and which it does not require."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    install += ["--no-deps", "--require-hashes", "-r", "codecs.txt", "--target", "packages"]
    packages = build(f"codecs-{version}", "python/codecs", install) / "packages"
    path = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    return ["env", f"PYTHONPATH={path}", *python_driver("kafka_python")]


def java_driver(kafka_version: str) -> list[str]:
    package = ["mvn", "-q", "-B", "package", f"-Dkafka.version={kafka_version}"]
    home = build(f"java-{kafka_version}", "java", package)
    # It runs for a minute: starting fast matters more than running fast.
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m"]
    return ["java", *options, "-cp", f"{home}/target/libs/*", "tidelog.compat.Driver"]


def go_driver() -> list[str]:
    return [str(build("go", "go", ["go", "build", "-o", "driver", "."]) / "driver")]


def node_driver() -> list[str]:
    # No package here needs its install script, so none is run.
    home = build("node", "node", ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"])
    return ["node", str(home / "driver.js")]
