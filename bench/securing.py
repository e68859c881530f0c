"""The row of what rules cost: brokers with and without an authorizer, under the same load."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from bench.loads.acls import allow_writing
from bench.peers.peer import Peer
from bench.peers.secured import SASL, secure
from bench.peers.swapping import SwappingBroker
from bench.rows import Row
from bench.runner import Result, Say, brief, others_cores, run_load
from bench.topics import fresh_topic

_TOPIC, _FORBIDDEN = "ruled", "forbidden"


def run_acls(
    row: Row, make: Sequence[Callable[[], Peer]], rounds: int, quick: bool, say: Say
) -> Result:
    """Ours is one process that goes by rules and without; Kafka has one for each."""
    results: dict[str, list[Result]] = {}
    with contextlib.ExitStack() as running:
        pairs = [_started(maker, running) for maker in make]
        for number in range(-1, rounds):
            for pair in pairs:
                result, name = _measure(row, pair, quick), pair[0].name
                if number >= 0:
                    results.setdefault(name, []).append(result)
                    say(f"  {row.key} round {number + 1} {name}: {brief(result)}")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": results}


def _started(maker: Callable[[], Peer], running: contextlib.ExitStack) -> tuple[Peer, Peer]:
    """The broker without rules and that with them, with a topic that the user may write to."""
    made = maker()
    if made.name == "tidelog":
        ruled = open_ = running.enter_context(
            secure(SwappingBroker(None, made.settings), acls=True)
        )
    else:
        open_ = running.enter_context(secure(made))
        ruled = running.enter_context(secure(maker(), acls=True))
    for peer in {open_, ruled}:
        for topic in (_TOPIC, _FORBIDDEN):
            running.enter_context(fresh_topic(peer.bootstrap_servers, name=topic))
    allow_writing(ruled.bootstrap_servers, _TOPIC)
    return open_, ruled


def _measure(row: Row, pair: tuple[Peer, Peer], quick: bool) -> Result:
    sides = {
        name: {"port": peer.port_of(SASL), "pid": peer.pid}
        for name, peer in zip(("open", "ruled"), pair, strict=True)
    }
    arguments = row.sized(quick) | {"sides": sides, "topic": _TOPIC}
    if pair[0] is pair[1]:
        arguments["forbidden"] = _FORBIDDEN
    with others_cores(list(set(pair))) as others:
        result = run_load(row.load, arguments)
    return {**result, **others}
