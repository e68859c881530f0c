"""Runs many seeds: `python -m tests.sim --seeds 500 [--from 1] [--jobs 2] [--brokers 3]`.

Prints how many ran per minute, which faults struck how often, and every seed that failed, with the
invariant that it broke. A seed that failed once goes into `seeds.toml`, which the tests run again
for ever.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
from collections import Counter

from tests.sim.run import Outcome, Plan, run_seed

# One in so many worlds has groups whose members come and go.
_SEEDS_PER_GROUPS = 4
_SEEDS_PER_PROCESS = 5


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    if options.trace:
        return _replay(options)
    started = time.perf_counter()
    seeds = [
        (seed, _plan(options, seed)) for seed in range(options.first, options.first + options.seeds)
    ]
    tally = Tally()
    if options.jobs == 1:
        for seed in seeds:
            tally.add(_run(seed))
    else:
        # Each process has what this one has loaded and made ready, and frees nothing: it ends.
        run_seed(options.first, _plan(options, options.first))
        gc.collect()
        gc.freeze()
        gc.disable()
        with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
            for outcome in pool.imap_unordered(_run, seeds, chunksize=_SEEDS_PER_PROCESS):
                tally.add(outcome)
    sys.stdout.write(tally.tell(time.perf_counter() - started))
    return int(bool(tally.failed))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many to run")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--brokers", type=int, default=3, help="brokers in a world")
    parser.add_argument("--profile", default="", help="what goes wrong; drawn where not given")
    parser.add_argument("--moves", action="store_true", help="move replicas meanwhile")
    parser.add_argument("--transactions", action="store_true", help="write in transactions, too")
    parser.add_argument("--groups", action="store_true", help="groups in each, not in some")
    parser.add_argument("--trace", action="store_true", help="run one seed and tell its events")
    return parser.parse_args(arguments)


def _plan(options: argparse.Namespace, seed: int) -> Plan:
    return Plan(
        brokers=options.brokers,
        profile=options.profile,
        moves=options.moves,
        transactions=options.transactions,
        groups=options.groups or seed % _SEEDS_PER_GROUPS == 0,
    )


def _run(task: tuple[int, Plan]) -> Outcome:
    return run_seed(*task)


def _replay(options: argparse.Namespace) -> int:
    outcome = run_seed(options.first, _plan(options, options.first))
    sys.stdout.write(f"{outcome}\n{outcome.events}\n" if not outcome.failed else f"{outcome}\n")
    return int(outcome.failed)


class Tally:
    """What many seeds came to."""

    def __init__(self) -> None:
        self.seeds = 0
        self.steps = 0
        self.counts: Counter[str] = Counter()
        self.failed: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.steps += outcome.steps
        self.counts.update(outcome.counts)
        if outcome.failed:
            self.failed.append(outcome)
            sys.stdout.write(f"{outcome}\n\n")
            sys.stdout.flush()

    def tell(self, seconds: float) -> str:
        lines = [
            f"{self.seeds} seeds in {seconds:.0f} s, {self.seeds / seconds * 60:.0f} a minute,"
            f" {self.steps / max(self.seeds, 1):.0f} steps each"
        ]
        lines += [f"  {count:7} {kind}" for kind, count in sorted(self.counts.items())]
        broken = Counter(each.invariant for each in self.failed)
        lines += [f"FAILED {count:5} x {invariant}" for invariant, count in broken.most_common()]
        seeds = sorted(each.seed for each in self.failed)
        lines.append(f"failing seeds: {seeds}" if seeds else "no seed failed")
        return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
