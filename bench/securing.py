"""The row of what rules cost: two brokers of each side, apart in their authorizer alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from bench.loads.acls import allow_writing
from bench.peers.peer import Peer
from bench.peers.secured import SASL, secure
from bench.rows import Row
from bench.runner import Result, Say, brief, others_cores, run_load
from bench.topics import fresh_topic

_TOPIC = "ruled"


def run_acls(
    row: Row, make: Sequence[Callable[[], Peer]], rounds: int, quick: bool, say: Say
) -> Result:
    with contextlib.ExitStack() as running:
        pairs = [
            [running.enter_context(secure(maker(), acls=acls)) for acls in (False, True)]
            for maker in make
        ]
        for peer in (each for pair in pairs for each in pair):
            running.enter_context(fresh_topic(peer.bootstrap_servers, name=_TOPIC))
        for _, ruled in pairs:
            allow_writing(ruled.bootstrap_servers, _TOPIC)
        results: dict[str, list[Result]] = {}
        for number in range(-1, rounds):
            for pair in pairs:
                result = _measure(row, pair, quick)
                if number >= 0:
                    results.setdefault(pair[0].name, []).append(result)
                    say(f"  {row.key} round {number + 1} {pair[0].name}: {brief(result)}")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": results}


def _measure(row: Row, pair: Sequence[Peer], quick: bool) -> Result:
    sides = {
        name: {"port": peer.port_of(SASL), "pid": peer.pid}
        for name, peer in zip(("open", "ruled"), pair, strict=True)
    }
    with others_cores(pair) as others:
        result = run_load(row.load, row.sized(quick) | {"sides": sides, "topic": _TOPIC})
    return {**result, **others}
