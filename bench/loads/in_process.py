"""How long a test waits for a broker of its own, inside an interpreter that is already warm."""

from __future__ import annotations

import time

from bench.measure import percentile


def start(times: int) -> dict[str, float]:
    from tidelog.testing import Broker

    took_s = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        with Broker():
            took_s.append(time.perf_counter() - begin)
    # The first one imported everything.
    return {"elapsed_s": percentile(took_s[1:], 0.5), "first_s": took_s[0]}
