"""How many names one user has brought into a shard, so that nobody fills it alone.

Kept in memory, from a user's first request on: the records have no place for an owner. A shard that
was loaded again starts to count from nothing, and the bound for all users together holds in any
case.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_USERS_MAX: Final = 10_000
# How many names of a user are looked for at a time: a refusal must not cost more than that.
_LOOKS: Final = 64


class Shares:
    """The names of each user in one shard; `exists` says which of them are still there."""

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        # In an order in which they take turns to be looked for.
        self._names: dict[str, OrderedDict[str, None]] = {}

    def take(self, user: str, name: str, most: int) -> bool:
        """Count a new name of a user; False where it has so many already."""
        names = self._names.setdefault(user, OrderedDict())
        if len(names) >= most:
            self._forget_gone(names)
            if len(names) >= most:
                return False
        names[name] = None
        if len(self._names) > _USERS_MAX:
            del self._names[next(iter(self._names))]
        return True

    def _forget_gone(self, names: OrderedDict[str, None]) -> None:
        for _ in range(min(_LOOKS, len(names))):
            name = next(iter(names))
            if self._exists(name):
                names.move_to_end(name)
            else:
                del names[name]
