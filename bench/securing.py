"""The row of what rules cost: two brokers of each side, apart in their authorizer alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from bench.loads.acls import allow_writing
from bench.peers.peer import Peer
from bench.peers.secured import SASL, secure
from bench.rows import Row
from bench.runner import Result, Say, brief, others_cores, run_load
from bench.topics import fresh_topic

_TOPIC = "ruled"
# Two processes that are set up alike differ by some percent for as long as they live. So each round
# has new ones, but for a side whose code is compiled while it runs.
_KEPT = "kafka"


def run_acls(
    row: Row, make: Sequence[Callable[[], Peer]], rounds: int, quick: bool, say: Say
) -> Result:
    results: dict[str, list[Result]] = {}
    with contextlib.ExitStack() as running:
        kept = {
            maker: running.enter_context(_pair(maker)) for maker in make if maker().name == _KEPT
        }
        for pair in kept.values():
            _measure(row, pair, quick)
        for number in range(rounds):
            for maker in make:
                with contextlib.ExitStack() as ending:
                    pair = kept.get(maker) or ending.enter_context(_pair(maker))
                    result = _measure(row, pair, quick)
                name = pair[0].name
                results.setdefault(name, []).append(result)
                say(f"  {row.key} round {number + 1} {name}: {brief(result)}")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": results}


@contextlib.contextmanager
def _pair(maker: Callable[[], Peer]) -> Iterator[list[Peer]]:
    """A broker without rules and one with them, each with a topic that the user may write to."""
    with contextlib.ExitStack() as running:
        pair = [running.enter_context(secure(maker(), acls=acls)) for acls in (False, True)]
        for peer in pair:
            running.enter_context(fresh_topic(peer.bootstrap_servers, name=_TOPIC))
        allow_writing(pair[1].bootstrap_servers, _TOPIC)
        yield pair


def _measure(row: Row, pair: Sequence[Peer], quick: bool) -> Result:
    sides = {
        name: {"port": peer.port_of(SASL), "pid": peer.pid}
        for name, peer in zip(("open", "ruled"), pair, strict=True)
    }
    with others_cores(pair) as others:
        result = run_load(row.load, row.sized(quick) | {"sides": sides, "topic": _TOPIC})
    return {**result, **others}
