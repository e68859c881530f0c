"""Where the Spark side keeps small files between runs: wrappers and links, made again at need."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """The user's cache; where he has none that can be written, a directory of his in `/tmp`.

    In a container the user may have no home at all. Spark runs what it finds here, so it must be
    nobody else's.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    cache = Path(base) / "tidelog"
    try:
        if cache.is_absolute():
            cache.mkdir(parents=True, exist_ok=True)
            if os.access(cache, os.W_OK | os.X_OK):
                return cache
    except OSError:
        pass
    private = Path(tempfile.gettempdir()) / f"tidelog-cache-{os.getuid()}"
    private.mkdir(mode=0o700, exist_ok=True)
    if private.is_symlink() or private.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="tidelog-cache-"))
    return private
