"""How many connections are open, and whose."""

from __future__ import annotations

from collections import Counter


class ConnectionCounts:
    """Open connections, in all and per address."""

    def __init__(self) -> None:
        self._hosts: dict[object, str] = {}
        self.per_address: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return len(self._hosts)

    def oldest(self, host: str | None = None) -> object:
        """The connection that was opened first, of one address where one is named."""
        return next(each for each, its in self._hosts.items() if host is None or its == host)

    def add(self, connection: object, host: str) -> None:
        self._hosts[connection] = host
        self.per_address[host] += 1

    def remove(self, connection: object) -> bool:
        """False where it was not counted, or not any more."""
        host = self._hosts.pop(connection, None)
        if host is None:
            return False
        self.per_address[host] -= 1
        if not self.per_address[host]:
            del self.per_address[host]
        return True
