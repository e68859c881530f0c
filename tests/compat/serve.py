"""Tidelog brokers beside the tests: say where they listen, end when their input does.

python -m tests.compat.serve BROKERS
"""

from __future__ import annotations

import sys

from tests.compat.target import SETTINGS
from tidelog.testing import Broker, Cluster


def main() -> None:
    count = int(sys.argv[1])
    brokers = Broker(settings=SETTINGS) if count == 1 else Cluster(count, settings=SETTINGS)
    with brokers:
        sys.stdout.write(f"{brokers.bootstrap_servers}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
