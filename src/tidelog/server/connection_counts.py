"""How many connections are open, and whose."""

from __future__ import annotations

from collections import Counter


class ConnectionCounts:
    """Open connections, in all, per address and per user."""

    def __init__(self) -> None:
        self._hosts: dict[object, str] = {}
        self._users: dict[object, str] = {}
        self.per_address: Counter[str] = Counter()
        self.per_user: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return len(self._hosts)

    def oldest(self, host: str | None = None) -> object:
        """The connection that was opened first, of one address where one is named."""
        return next(each for each, its in self._hosts.items() if host is None or its == host)

    def add(self, connection: object, host: str) -> None:
        self._hosts[connection] = host
        self.per_address[host] += 1

    def add_user(self, connection: object, user: str) -> None:
        """Who is at the other end of a connection that is counted."""
        if connection in self._hosts and connection not in self._users:
            self._users[connection] = user
            self.per_user[user] += 1

    def has_user(self, connection: object) -> bool:
        return connection in self._users

    def remove(self, connection: object) -> bool:
        """False where it was not counted, or not any more."""
        host = self._hosts.pop(connection, None)
        if host is None:
            return False
        _count_down(self.per_address, host)
        user = self._users.pop(connection, None)
        if user is not None:
            _count_down(self.per_user, user)
        return True


def _count_down(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
