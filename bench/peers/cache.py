"""What peers are made of is fetched once, into a cache outside the tree.

A download goes to a temporary name under a lock and is renamed when whole, so any number of
processes may ask for it at once.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path


def peer_directory(name: str) -> Path:
    """Where the cache keeps, or will keep, something."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "tidelog" / "peers" / name


def fetched(name: str, fetch: Callable[[Path], None]) -> Path:
    """The directory `name` of the cache, filled by `fetch` when it is not there yet."""
    home = peer_directory(name)
    if home.is_dir():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.with_suffix(home.suffix + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            partial = Path(tempfile.mkdtemp(prefix=home.name + ".", dir=home.parent))
            try:
                fetch(partial)
                partial.rename(home)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return home


def maven(*arguments: str) -> None:
    """Run Maven to its end; its output is in the error where it fails."""
    command = ["mvn", "-q", "-B", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
