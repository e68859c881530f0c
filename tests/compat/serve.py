"""A Tidelog broker in a process of its own: says where it listens, ends when its input does."""

from __future__ import annotations

import sys

from tests.compat.target import SETTINGS
from tidelog.testing import Broker


def main() -> None:
    with Broker(settings=SETTINGS) as broker:
        sys.stdout.write(f"{broker.bootstrap_servers}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
