"""Builds the sdist and the wheel, and tries each in an environment of its own (`make wheel`).

Three installs: the wheel, whose record kernels must be compiled; the sdist with a C compiler, the
same; the sdist without one, which must work uncompiled and say so. In each a broker is started in
the process, records go through it and back, and `tidelog --version` and `tidelog doctor` are asked.

With `--share-packages` the environments see the packages of the interpreter that runs this, instead
of fetching their dependencies from the index, and the second install is left out, since the wheel
is itself built from the sdist. The tests use it: it needs no network and takes half the time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_SOURCE = (
    ".*", "build", "dist", "*.egg-info", "__pycache__", "*.so", "node_modules", "target",
    "tidelog-data", "tests", "bench", "docs", "examples",
)  # fmt: skip

SDIST = "sdist"
SMOKE = """
import json, subprocess, sys, tidelog
from tidelog import _kernels
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.blocking_producer import Producer
from tidelog.client.offsets import Start
from tidelog.client.settings import ProducerSettings
from tidelog.model import Codec, TopicPartition
from tidelog.testing import Broker

command = sys.argv[1]
sent = [b"%d" % number for number in range(1000)]
with Broker() as broker:
    servers = broker.bootstrap_servers
    for codec in Codec:
        with Producer(servers, ProducerSettings(codec=codec)) as producer:
            for value in sent:
                producer.send(ProducerRecord(codec.name, value, b"key"))
            producer.flush()
        found = []
        with Consumer(servers) as consumer:
            consumer.assign({TopicPartition(codec.name, 0): Start("start")})
            while len(found) < len(sent):
                for _, records in consumer.poll(1.0):
                    found += [record.value for record in records]
        assert found == sent, codec
    doctor = subprocess.run(
        [command, "doctor", "-b", servers, "--format", "json"], capture_output=True, text=True
    )
version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
print(json.dumps({
    "compiled": _kernels.COMPILED,
    "from": tidelog.__file__,
    "version": version.stdout.strip(),
    "records": len(sent) * len(Codec),
    "findings": json.loads(doctor.stdout),
    "doctor_exit_code": doctor.returncode,
}))
"""


@dataclass(slots=True)
class Trial:
    """One way to install, and which form of the kernels must come of it."""

    name: str
    artifact: Path
    with_compiler: bool
    compiled: bool


class TrialError(Exception):
    """What was built does not do what it must; the message says what and where."""


def run(
    command: Sequence[str | Path], directory: Path, environment: dict[str, str] | None = None
) -> str:
    """Run a command; its standard output, or a TrialError with all that it said."""
    done = subprocess.run(
        command, check=False, cwd=directory, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        shown = " ".join(map(str, command))[:200]
        raise TrialError(f"{shown}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(work: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it, out of a copy of the tree."""
    source, output = work / "source", work / "dist"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    environment = {**os.environ, "TIDELOG_REQUIRE_KERNELS": "1"}
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation"]
    run([*command, "--outdir", output, source], work, environment)
    (sdist,) = output.glob("*.tar.gz")
    (wheel,) = output.glob("*.whl")
    return sdist, wheel


def try_one(trial: Trial, work: Path, *, share_packages: bool) -> str:
    """Install into a new environment, use it, and hold the outcome to the trial; a table row."""
    before = time.monotonic()
    home = work / trial.name.replace(" ", "-")
    run([sys.executable, "-m", "venv", "--without-pip", home], work)
    python, command = home / "bin" / "python", home / "bin" / "tidelog"
    install: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install"]
    install += ["-q", "--disable-pip-version-check", trial.artifact]
    if share_packages:
        _share_packages(python, work)
        # The environment would otherwise count this interpreter's own Tidelog as installed.
        install += ["--no-deps", "--no-build-isolation", "--force-reinstall", "--ignore-installed"]
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
    if not trial.with_compiler:
        environment |= {"CC": "/bin/false", "CXX": "/bin/false", "PATH": str(home / "bin")}
    run(install, work, environment)
    program = work / "smoke.py"
    program.write_text(SMOKE)
    environment["PATH"] = str(home / "bin")
    seen = json.loads(run([python, program, command], work, environment).splitlines()[-1])
    _judge(trial, home, seen)
    form = "compiled" if seen["compiled"] else "uncompiled"
    seconds = time.monotonic() - before
    return (
        f"{trial.name:<22} {form:<11} {seen['records']:>7,} {seen['version']:<14} {seconds:>5.1f}"
    )


def _share_packages(python: Path, work: Path) -> None:
    """Let an environment see this interpreter's packages; `.pth` files in there are not read."""
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    target = Path(run([python, "-c", asked], work).strip())
    (target / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")


def _judge(trial: Trial, home: Path, seen: dict[str, object]) -> None:
    if not str(seen["from"]).startswith(str(home)):
        raise TrialError(f"{trial.name}: tidelog came from {seen['from']}, not from {home}")
    if seen["compiled"] is not trial.compiled:
        raise TrialError(f"{trial.name}: kernels compiled: {seen['compiled']}")
    findings = seen["findings"]
    assert isinstance(findings, list)
    verdicts = {finding["name"]: finding["ok"] for finding in findings}
    if verdicts["kernels"] is not trial.compiled or not verdicts["protocol"]:
        raise TrialError(f"{trial.name}: doctor says {findings}")
    if not trial.compiled and seen["doctor_exit_code"] != 1:
        raise TrialError(f"{trial.name}: doctor found a fault and exited with 0")


def trials(sdist: Path, wheel: Path) -> list[Trial]:
    return [
        Trial("wheel", wheel, with_compiler=True, compiled=True),
        Trial(SDIST, sdist, with_compiler=True, compiled=True),
        Trial("sdist, no compiler", sdist, with_compiler=False, compiled=False),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--share-packages", action="store_true", help="fetch no dependencies")
    share_packages = parser.parse_args().share_packages
    with tempfile.TemporaryDirectory(prefix="tidelog-wheel-") as name:
        work = Path(name)
        try:
            sdist, wheel = build(work)
            for artifact in (sdist, wheel):
                sys.stdout.write(f"built {artifact.name} ({artifact.stat().st_size:,} bytes)\n")
            sys.stdout.write(f"{'':<22} {'kernels':<11} {'records':>7} {'version':<14} seconds\n")
            for trial in trials(sdist, wheel):
                if share_packages and trial.name == SDIST:
                    continue
                sys.stdout.write(try_one(trial, work, share_packages=share_packages) + "\n")
                sys.stdout.flush()
        except TrialError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
