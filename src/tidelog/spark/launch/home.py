"""A home of Spark whose Python processes start in a third of the time.

Spark puts `python/lib/pyspark.zip` of its home in front of the path of every Python process that it
starts, and Python keeps no compiled files for what it imports from a zip: each process compiles
PySpark anew, for 0.8 s of a core. A query of a stream starts about ten of them. In the home made
here everything is a link into the installed package, and behind the zip's name is a directory with
the package itself, compiled when it was installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import MutableMapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidelog.spark.launch.cache import cache_directory

_PREFIX: Final = "spark-home-"
# What is linked how; one of another layout is another home.
_LAYOUT: Final = "2"


def use_quick_home(environment: MutableMapping[str, str], cache: Path | None = None) -> None:
    """Set SPARK_HOME to such a home, unless the user has one, or PySpark is no installed package.

    Without it everything works too, only slower, so that what cannot be written is no error.
    """
    with suppress(OSError):
        cache = cache or cache_directory()
        chosen = environment.get("SPARK_HOME", "")
        # One that we have set ourselves may be inherited by a process with another PySpark.
        if chosen and not (Path(chosen).parent == cache and Path(chosen).name.startswith(_PREFIX)):
            return
        package = _installed_package()
        if package is not None:
            environment["SPARK_HOME"] = str(quick_home(package, cache))


def _installed_package() -> Path | None:
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        return None
    # Resolved: in a program that runs from such a home the package is found through its links.
    package = Path(found.submodule_search_locations[0]).resolve()
    is_whole = (package / "jars").is_dir() and (package / "python/lib/pyspark.zip").is_file()
    return package if is_whole else None


def quick_home(package: Path, cache: Path) -> Path:
    """The home for an installed package; made where it is not there, or not for this package."""
    # Another version in the same place has other files.
    files = sorted(path.name for path in (package / "jars").glob("spark-core*"))
    key = "\n".join([_LAYOUT, str(package), *files])
    home = cache / f"{_PREFIX}{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if not home.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=cache))
        try:
            _link(package, made)
            try:
                os.rename(made, home)
            except OSError:
                # Another process may have been quicker, with the same result.
                if not home.is_dir():
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return home


def _link(package: Path, home: Path) -> None:
    # Users make `conf` when they need it, which may be later.
    for each in {*package.iterdir(), package / "conf"}:
        if each.name != "python":
            (home / each.name).symlink_to(each)
    library = home / "python" / "lib"
    library.mkdir(parents=True)
    for each in (package / "python").iterdir():
        if each.name != "lib":
            (home / "python" / each.name).symlink_to(each)
    for each in (package / "python" / "lib").iterdir():
        if each.name != "pyspark.zip":
            (library / each.name).symlink_to(each)
    (library / "pyspark.zip").mkdir()
    (library / "pyspark.zip" / "pyspark").symlink_to(package)
