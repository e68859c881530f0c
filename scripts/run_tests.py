"""Runs all tests in two processes at once: much of both is waiting for others.

    python scripts/run_tests.py [options of pytest]

What talks to clients in other languages and to Spark is one half. Its output comes at its end,
that of the other half as it runs. Exits with 0 where both did.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

APART = ("tests/compat", "tests/spark")


def main() -> int:
    pytest = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    # Their guardians see to it that they end with this one.
    os.environ["GUARDED_BY"] = str(os.getpid())
    with tempfile.TemporaryFile("w+") as output:
        apart = subprocess.Popen([*pytest, *APART], stdout=output, stderr=subprocess.STDOUT)
        others = subprocess.Popen([*pytest, *(f"--ignore={path}" for path in APART)])
        signal.signal(signal.SIGTERM, lambda *_: _interrupt(apart, others))
        codes = [_ended(others), _ended(apart)]
        output.seek(0)
        sys.stdout.write(f"\n{' and '.join(APART)}:\n{output.read()}")
    return int(any(codes))


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code; Ctrl-C reaches all of us, and each comes to an end by itself."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def _interrupt(*processes: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, so that their tests stop what they have started."""
    for process in processes:
        process.send_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
