"""Runs all tests in several processes at once: most of them wait for others most of the time.

    python scripts/run_tests.py [options of pytest]

Each pattern below is a run of its own, the longest first, one more at a time than there are
processors; everything that matches none of them is one more. A run prints its output when it ends.
Exits with 0 if every run did.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

# A folder is divided only where its tests share nothing expensive, such as a Spark session or the
# clients of other languages.
ALL_ELSE: Final = "all else"
PATTERNS: Final = (
    "tests/spark",
    "tests/compat",
    "tests/e2e/test_[a-f]*.py",
    "tests/e2e/test_[g-z]*.py",
    "tests/sim",
    ALL_ELSE,
    "tests/chaos",
    "tests/model",
)
# What pytest says where no test was chosen.
_NO_TESTS: Final = 5


class Runs:
    """The processes, and whether more are to be started."""

    def __init__(self, options: list[str]) -> None:
        self._pytest = [sys.executable, "-m", "pytest", *options]
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_over = False

    def run(self, name: str, chosen: list[str]) -> int:
        """Run some of the tests and show what came of them; the exit code."""
        started = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            with self._lock:
                if self._is_over:
                    return int(signal.SIGTERM)
                process = subprocess.Popen(
                    [*self._pytest, *chosen], stdout=output, stderr=subprocess.STDOUT
                )
                self._running.add(process)
            code = process.wait()
            with self._lock:
                self._running.discard(process)
                output.seek(0)
                seconds = time.monotonic() - started
                sys.stdout.write(f"\n{name} ({seconds:.0f} s):\n{output.read()}")
                sys.stdout.flush()
        return code

    def stop(self, signum: int, _: object) -> None:
        """Begin nothing else, and have tests stop what they have started, as Ctrl-C does.

        Ctrl-C itself has reached all of us.
        """
        with self._lock:
            self._is_over = True
            for process in self._running if signum != signal.SIGINT else ():
                process.send_signal(signal.SIGINT)


def main() -> int:
    # Their guardians see to it that they end with this one.
    os.environ["GUARDED_BY"] = str(os.getpid())
    runs = Runs(sys.argv[1:])
    matches = {each: [str(path) for path in sorted(Path().glob(each))] for each in PATTERNS}
    matches[ALL_ELSE] = [f"--ignore={path}" for paths in matches.values() for path in paths]
    chosen = {each: paths for each, paths in matches.items() if paths or each == ALL_ELSE}
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, runs.stop)
    with ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        submitted = [pool.submit(runs.run, *each) for each in chosen.items()]
        found = [each.result() for each in submitted]
    return int(any(code not in (0, _NO_TESTS) for code in found) or set(found) == {_NO_TESTS})


if __name__ == "__main__":
    sys.exit(main())
