"""A broker of ours with access-control lists that can be told to go without them for a while.

Two processes that are set up alike differ by more than rules cost. So one process does both:
SIGUSR1 has it decide as a broker without an authorizer does, by the same code, and SIGUSR2 by its
rules again.
"""

from __future__ import annotations

import signal
import sys

from bench.peers.tidelog import TidelogBroker


class SwappingBroker(TidelogBroker):
    """``tidelog broker``, started by this module."""

    def command(self) -> list[str]:
        broker = super().command()
        return [sys.executable, "-m", "bench.peers.swapping", *broker[broker.index("broker") :]]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": ":".join(filter(None, sys.path))}


def main() -> None:
    from tidelog.cli.main import main as run
    from tidelog.security.authorizer import OpenAuthorizer
    from tidelog.server import broker

    make, questions = broker.authorizer_of, ("authorize", "authorize_any", "rules")

    def made(*arguments: object) -> object:
        ruled, without = make(*arguments), OpenAuthorizer()  # type: ignore[arg-type]

        def go_without(*_: object) -> None:
            for each in questions:
                setattr(ruled, each, getattr(without, each))

        def go_by_rules(*_: object) -> None:
            for each in questions:
                vars(ruled).pop(each, None)

        signal.signal(signal.SIGUSR1, go_without)
        signal.signal(signal.SIGUSR2, go_by_rules)
        return ruled

    broker.authorizer_of = made  # type: ignore[assignment]
    run()


if __name__ == "__main__":
    main()
