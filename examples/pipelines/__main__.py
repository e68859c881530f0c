"""`python -m examples.pipelines NAME`: run an example in every mode and compare with the truth.

It starts a broker in a temporary directory (the mirror has two), sends the events of a seed, runs
the pipeline's file as processes, and prints a line for each mode. The exit code is 0 where all are
equal to the truth.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from examples.pipelines.example import NAMES, load
from examples.pipelines.trial import MODES, Trial
from examples.processes import Broker, Failure
from scripts.guardian import guard
from tidelog.errors import TidelogError

# So that one does not wait for what compaction leaves.
CLEAN_SOON = "log.cleaner.backoff.ms=500"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.pipelines", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--events", type=int, default=200_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument(
        "--mode",
        action="append",
        choices=[*MODES, "all"],
        help="repeatable; all of them by default",
    )
    parser.add_argument("--kill", action="store_true", help="SIGKILL the driver and resume")
    parser.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT", help="a broker without these topics"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    given = parse(arguments)
    modes = MODES if not given.mode or "all" in given.mode else tuple(dict.fromkeys(given.mode))
    example = load(given.name)
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-example-"))
        )

        def broker(name: str) -> str:
            return stack.enter_context(Broker(directory / name, CLEAN_SOON)).servers

        guard()
        servers = given.bootstrap_servers or broker("broker")
        parts = example.generate(given.events, given.seed)
        chance = random.Random(given.seed)
        trial = Trial(given.name, example, servers, directory, parts, chance, given.kill)
        if example.elsewhere:
            trial.elsewhere = broker("elsewhere")
        if given.bootstrap_servers is not None:
            stack.callback(trial.remove)
        print(f"{given.name}: {sum(map(len, parts)):,} records of seed {given.seed}", flush=True)
        equal = True
        try:
            for result in trial.run(modes):
                print(result, flush=True)
                for each in result.comparisons:
                    print(*(f"  {line}\n" for line in each.differences()), sep="", end="")
                equal = equal and result.equal
        except (Failure, TidelogError) as failure:
            print(f"{given.name}: {failure}", file=sys.stderr)
            return 1
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
