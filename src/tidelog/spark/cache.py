"""Where the Spark side keeps small files between runs: wrappers and links, made again at need."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidelog"
