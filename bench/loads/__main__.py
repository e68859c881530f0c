"""Run one load and print its result; see `bench.loads`."""

from __future__ import annotations

import importlib
import json
import sys


def main() -> None:
    module, _, function = sys.argv[1].partition(".")
    arguments = json.loads(sys.argv[2])
    result = getattr(importlib.import_module(f"bench.loads.{module}"), function)(**arguments)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
