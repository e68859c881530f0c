"""What happens to accounts: they are opened, renamed, closed, and money comes and goes.

An event has the number that it has in the life of its account. Some are late, some are sent twice,
some are malformed; what cannot be read did not happen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from examples.pipelines.events import as_json, event_time, in_parts, iso, with_faults
from tidelog.client.batching import ProducerRecord

TOPIC = "account-events"
EVENTS_PER_ACCOUNT = 20
NAMES = ("Ann", "Bob", "Cem", "Dee", "Eve", "Fay", "Gus", "Ida")
KINDS, WEIGHTS = ("deposited", "withdrawn", "renamed", "closed"), (55, 35, 7, 3)


@dataclass
class Account:
    name: str
    version: int = 0


def generate(count: int, seed: int) -> list[list[ProducerRecord]]:
    chance = random.Random(seed)
    open_accounts: list[Account] = []
    opened = 0

    def event(number: int) -> ProducerRecord:
        nonlocal opened
        if len(open_accounts) < max(1, count // EVENTS_PER_ACCOUNT // 2):
            account = Account(f"account-{opened}")
            opened += 1
            open_accounts.append(account)
            return happened(account, "opened", number)
        at = chance.randrange(len(open_accounts))
        kind = chance.choices(KINDS, WEIGHTS)[0]
        if kind != "closed":
            return happened(open_accounts[at], kind, number)
        open_accounts[at], open_accounts[-1] = open_accounts[-1], open_accounts[at]
        return happened(open_accounts.pop(), kind, number)

    def happened(account: Account, kind: str, number: int) -> ProducerRecord:
        account.version += 1
        at_ms = event_time(chance, number)
        value: dict[str, object] = {
            "account": account.name,
            "version": account.version,
            "kind": kind,
            "at": iso(at_ms),
        }
        if kind in ("opened", "renamed"):
            value["owner"] = chance.choice(NAMES)
        elif kind in ("deposited", "withdrawn"):
            value["cents"] = chance.randrange(1, 100_000)
        return ProducerRecord(TOPIC, as_json(value), account.name.encode(), timestamp_ms=at_ms)

    events = (event(number) for number in range(count))
    return in_parts(list(with_faults(events, chance)), [])
