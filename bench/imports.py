"""``python -m bench.imports``: what a start spends its processor time on, module by module.

`tidelog broker` until it serves, and `tidelog topic list` against it, each several times. For each
module the processor time of its own import, the least of all runs, without that of the modules that
it imports in turn: the figure repeats on a busy machine, and says what has grown. Bytecode is kept
in a directory of the run's own, as a wheel has it; the first run, which compiles, does not count.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import family
from bench.peers.process import free_port, spawn, stop, wait_until_serving
from bench.peers.tidelog import ROOT, environment
from scripts.guardian import guard

# Runs in the process that is measured: the import system looks this function up at every import.
_PRELUDE = """
import _frozen_importlib, atexit, json, sys, time
own, inner, load, clock = {}, [0], _frozen_importlib._find_and_load, time.process_time_ns
def timed(name, import_):
    inner.append(0)
    start = clock()
    try:
        return load(name, import_)
    finally:
        whole = clock() - start
        own[name] = whole - inner.pop()
        inner[-1] += whole
_frozen_importlib._find_and_load = timed
def report(path=sys.argv[1]):
    own[""] = clock()
    with open(path, "w") as file:
        json.dump(own, file)
atexit.register(report)
sys.argv[1:2] = []
sys.argv[0] = "tidelog"
from tidelog.__main__ import run
run()
"""

Nanoseconds = dict[str, int]


def _command(report: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-c", _PRELUDE, str(report), *arguments]


def cpu_ns(pid: int) -> int:
    """Processor time of a process that runs, finer than its status tells."""
    return sum(
        int(task.read_text().split()[0])
        for each in family(pid)
        for task in Path(f"/proc/{each}/task").glob("*/schedstat")
    )


def measure(directory: Path, bytecode: str, kept: dict[str, list[Nanoseconds]]) -> None:
    """One start of a broker, and one list of its topics."""
    variables = {**environment(), "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    report, port = directory / "report", free_port()
    address = f"127.0.0.1:{port}"
    broker = _command(report, "broker", "--listen", address, "--data-dir", str(directory / "data"))
    process = spawn(broker, str(directory / "output"), env=variables, cwd=ROOT)
    try:
        wait_until_serving(port, process, (directory / "output").read_text, 60)
        until_serving = cpu_ns(process.pid)
        listed = directory / "listed"
        subprocess.run(
            _command(listed, "topic", "list", "-b", address),
            check=True,
            capture_output=True,
            env=variables,
            cwd=ROOT,
        )
    finally:
        stop(process)
    kept["tidelog broker"].append({**json.loads(report.read_text()), "": until_serving})
    kept["tidelog topic list"].append(json.loads(listed.read_text()))


def table(runs: list[Nanoseconds], shown: int) -> str:
    """The least of all runs: the whole, the share of imports, and the modules that cost most."""
    least = {name: min(run.get(name, 0) for run in runs) for name in runs[0]}
    whole = least.pop("")
    by_package: collections.Counter[str] = collections.Counter()
    for name, taken in least.items():
        by_package[name if name.count(".") < 2 else name.rpartition(".")[0]] += taken
    lines = [f"{whole / 1e6:.0f} ms, {sum(least.values()) / 1e6:.0f} of them {len(least)} imports"]
    lines += [f"  {ns / 1e6:6.1f} ms  {name}.*" for name, ns in by_package.most_common(12)]
    ranked = sorted(least.items(), key=lambda item: -item[1])
    lines += [f"  {taken / 1e6:6.1f} ms  {name}" for name, taken in ranked[:shown]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.imports", description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--shown", type=int, default=20, help="how many modules")
    options = parser.parse_args()
    guard()
    kept: dict[str, list[Nanoseconds]] = {"tidelog broker": [], "tidelog topic list": []}
    with tempfile.TemporaryDirectory(prefix="bytecode-") as bytecode:
        for _ in range(1 + options.runs):
            with tempfile.TemporaryDirectory(prefix="imports-") as directory:
                measure(Path(directory), bytecode, kept)
    for name, (_, *runs) in kept.items():
        print(f"{name}: {table(runs, options.shown)}")


if __name__ == "__main__":
    main()
