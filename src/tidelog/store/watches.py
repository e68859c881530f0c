"""Who is told of what: the state of a session, and nodes where all sessions are in one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.store.port import (
    Cancel,
    Check,
    Operation,
    SessionCallback,
    SessionState,
    Set,
    WatchCallback,
    WatchEvent,
)


class SessionWatches:
    """Those who are told of the state of one session, in the order of asking."""

    def __init__(self) -> None:
        self._callbacks: list[SessionCallback] = []

    def add(self, callback: SessionCallback) -> Cancel:
        self._callbacks.append(callback)

        def cancel() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return cancel

    def drop(self) -> None:
        self._callbacks.clear()

    def tell(self, state: SessionState) -> None:
        for callback in tuple(self._callbacks):
            callback(state)

    def __iter__(self) -> Iterator[SessionCallback]:
        return iter(tuple(self._callbacks))


class Watches:
    """Tells of transactions, once per watch and transaction, in the order of watching."""

    def __init__(self) -> None:
        self._entries: list[tuple[str, WatchCallback, object]] = []

    def add(self, path: str, callback: WatchCallback, owner: object) -> Cancel:
        entry = (path, callback, owner)
        self._entries.append(entry)

        def cancel() -> None:
            if entry in self._entries:
                self._entries.remove(entry)

        return cancel

    def drop(self, owner: object) -> None:
        """Forget the watches of a session that has ended."""
        self._entries = [each for each in self._entries if each[2] is not owner]

    def tell(self, operations: Sequence[Operation], revision: int) -> None:
        if not self._entries:
            return
        changed: set[str] = set()
        for each in operations:
            if isinstance(each, Check):
                continue
            changed.add(each.path)
            if not isinstance(each, Set):
                # A child that comes or goes is a change of its parent.
                changed.add(each.path.rpartition("/")[0] or "/")
        for path, callback, _ in tuple(self._entries):
            if path in changed:
                callback(WatchEvent(path, revision))
