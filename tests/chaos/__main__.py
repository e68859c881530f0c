"""``python -m tests.chaos``: real brokers, ZooKeepers and clients, and one fault after another.

Ends with what was acknowledged, what is there, and how long partitions could not be written.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from scripts.guardian import guard
from tests.chaos.faults import FAULTS, NETWORK_FAULTS, POWER_FAULTS
from tests.chaos.namespaces import can_isolate
from tests.chaos.power import can_cut_power
from tests.chaos.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=20, help="how many (20)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--kinds", help=f"of: {', '.join([*FAULTS, *NETWORK_FAULTS, *POWER_FAULTS])}"
    )
    parser.add_argument("--fsync", action="store_true", help="a topic with durability=fsync")
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    guard()
    kinds = dict(FAULTS)
    if can_isolate():
        kinds |= NETWORK_FAULTS
    if can_cut_power():
        kinds |= POWER_FAULTS
    if given.kinds:
        kinds = {name: kinds[name] for name in given.kinds.split(",")}
    chance = random.Random(given.seed)
    names = [chance.choice(list(kinds)) for _ in range(given.faults)]
    print(f"seed={given.seed} faults={dict(Counter(names))}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.directory or Path(temporary) / "chaos"
        outcome = run(directory, [(name, kinds[name]) for name in names], chance, given.fsync)
    print(outcome.text())
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
