"""Regular expressions over topic names, in RE2's syntax and in pieces.

A pattern matches a whole name. Its length, its program and the memory that matching takes are
bounded, so a name takes microseconds with the patterns that people write and two milliseconds with
the worst there are. Whoever has the names matched says how many make a piece.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from tidelog.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)

_PATTERN_BYTES_MAX: Final = 4_096
_MEMORY_BYTES: Final = 1 << 20
_INSTRUCTIONS_MAX: Final = 1_000

Found = dict[str, frozenset[str]]


class ResolvedPattern(NamedTuple):
    """The topics that a pattern matches, by which version of the metadata, and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def compile_pattern(pattern: str) -> Any:
    """The pattern in a form that matches bytes; KafkaError for one that cannot be used."""
    import re2  # Costs a start more than it may; few groups use patterns.

    encoded = pattern.encode()
    if len(encoded) > _PATTERN_BYTES_MAX:
        raise refused(f"SubscribedTopicRegex is longer than {_PATTERN_BYTES_MAX} bytes.")
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(encoded, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "it is too large"
        raise refused(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."
        ) from None
    finally:
        # Its own cache would keep the memory of many.
        re2.purge()
    if compiled.programsize > _INSTRUCTIONS_MAX:
        raise refused(
            f"SubscribedTopicRegex `{pattern}` is too large: it has {compiled.programsize}"
            f" instructions, and at most {_INSTRUCTIONS_MAX} are taken."
        )
    return compiled


def refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


@dataclass(slots=True)
class Search:
    """What patterns match among these topics.

    Patterns in `known` are up to date with the topics `seen`: only what came since is matched.
    `piece_names` may change between pieces.
    """

    patterns: Collection[str]
    topics: Collection[str]
    seen: Collection[str]
    known: Mapping[str, ResolvedPattern]
    is_allowed: Callable[[str], bool]
    piece_names: int
    _since_break: int = 0

    def pieces(self) -> Generator[None, None, Found]:
        """Do it piece by piece; the result is the generator's."""
        found: Found = {}
        all_names = frozenset(self.topics)
        added = all_names.difference(self.seen)
        for pattern in self.patterns:
            known = self.known.get(pattern)
            if known is None:
                found[pattern] = frozenset((yield from self._matches(pattern, all_names)))
            else:
                new = yield from self._matches(pattern, added)
                found[pattern] = (known.topics & all_names) | new
        return found

    def _matches(self, pattern: str, names: Collection[str]) -> Generator[None, None, set[str]]:
        matches: set[str] = set()
        if not names:
            return matches
        try:
            compiled = compile_pattern(pattern)
        except KafkaError as error:
            # Another broker took it: Kafka's library knows some that this one does not.
            _log.warning("pattern left out reason=%s", error)
            return matches
        remaining = iter(names)
        while some := list(islice(remaining, self.piece_names)):
            self._since_break += len(some)
            if self._since_break > self.piece_names:
                self._since_break = len(some)
                yield
            matches.update(
                name for name in some if compiled.fullmatch(name.encode()) and self.is_allowed(name)
            )
        return matches
