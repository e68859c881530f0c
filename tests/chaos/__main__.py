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
from tests.chaos.kinds import BEYOND_BUDGET, DISK_FAULTS, FAULTS, NETWORK_FAULTS, possible_faults
from tests.chaos.run import run
from tests.chaos.world import Wishes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=20, help="how many (20)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    every = [*FAULTS, *NETWORK_FAULTS, *DISK_FAULTS, *BEYOND_BUDGET]
    parser.add_argument("--kinds", help=f"of: {', '.join(every)}")
    parser.add_argument("--fsync", action="store_true", help="a topic with durability=fsync")
    parser.add_argument("--pipeline", action="store_true", help="a pipeline on Spark as well")
    parser.add_argument("--long", action="store_true", help="a minute without a quorum")
    parser.add_argument("--rate", type=int, default=400, help="records per second (400)")
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    guard()
    kinds = possible_faults()
    if given.kinds:
        kinds |= BEYOND_BUDGET
        kinds = {name: kinds[name] for name in given.kinds.split(",")}
    chance = random.Random(given.seed)
    names = [chance.choice(list(kinds)) for _ in range(given.faults)]
    print(f"seed={given.seed} faults={dict(Counter(names))}", flush=True)
    wishes = Wishes(
        pipeline=given.pipeline,
        long=given.long,
        records_per_second=given.rate,
        topic_settings={"durability": "fsync"} if given.fsync else {},
    )
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.directory or Path(temporary) / "chaos"
        outcome = run(directory, [(name, kinds[name]) for name in names], chance, wishes)
    print(outcome.text())
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
