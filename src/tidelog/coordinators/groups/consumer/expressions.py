"""Regular expressions over topic names, in RE2's syntax and in pieces.

A pattern matches a whole name. Names are ASCII, so patterns are compiled for single bytes. What
they may cost is bounded before they are compiled (length, repetitions, no Unicode classes) and
after (instructions), and matching gets little memory, so RE2 falls early to its slower engine
instead of building an automaton first. With the worst patterns known, compiling takes some five
milliseconds, and a name of 249 characters less than one. Work is counted, not timed: a name costs
its length times the instructions of the pattern, and a piece ends where the next would not fit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from tidelog.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)

_PATTERN_BYTES_MAX: Final = 2_048
_MEMORY_BYTES: Final = 128 << 10
_INSTRUCTIONS_MAX: Final = 500
_REPETITIONS_MAX: Final = 500
# RE2's own bound for a single one.
_REPETITION_MAX: Final = 1_000
_REPETITION: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}", re.ASCII)
# With (?i) the parser takes ten milliseconds for each of them.
_UNICODE_CLASS: Final = re.compile(r"\\[pP]")
# Each alternative is left for good at its first other character: that costs little at any size.
_LIST_OF_NAMES: Final = re.compile(r"[\w.|^$\\-]*", re.ASCII)
_COMPILED_KEPT: Final = 128

# Steps are a byte of a name times an instruction. A piece is some milliseconds at the worst.
PIECE_STEPS: Final = 250_000
_STEPS_PER_NAME: Final = 1_000
_STEPS_PER_INSTRUCTION_COMPILED: Final = 100
_STEPS_PER_NAME_KNOWN: Final = 20

Found = dict[str, frozenset[str]]


class ResolvedPattern(NamedTuple):
    """The topics that a pattern matches, by which version of the metadata, and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@lru_cache(_COMPILED_KEPT)
def compile_pattern(pattern: str) -> Any:
    """The pattern in a form that matches bytes; KafkaError for one that cannot be used."""
    import re2  # Costs a start more than it may; few groups use patterns.

    _check_text(pattern)
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.never_capture = True
    # A character that no name has stands for all of those.
    encoded = "".join(each if each < "\xff" else "\xff" for each in pattern).encode("latin-1")
    try:
        compiled = re2.compile(encoded, options)
    except re2.error as error:
        reason = error.args[0].decode("latin-1") if error.args else "it is too large"
        raise refused(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."
        ) from None
    finally:
        # Its own cache would keep those that are refused here.
        re2.purge()
    size = compiled.programsize
    if size > _INSTRUCTIONS_MAX and not _LIST_OF_NAMES.fullmatch(pattern):
        raise refused(
            f"SubscribedTopicRegex `{pattern}` is too large: it has {size}"
            f" instructions, and at most {_INSTRUCTIONS_MAX} are taken."
        )
    return compiled


def _check_text(pattern: str) -> None:
    """Refuse what would take long to compile."""
    if len(pattern.encode()) > _PATTERN_BYTES_MAX:
        raise refused(f"SubscribedTopicRegex is longer than {_PATTERN_BYTES_MAX} bytes.")
    if _UNICODE_CLASS.search(pattern):
        raise refused(
            f"SubscribedTopicRegex `{pattern}` has a Unicode class (\\p or \\P). Topic names are"
            " ASCII: use a class such as [a-z] or \\w."
        )
    counts = (int((most or least)[:9]) for least, most in _REPETITION.findall(pattern))
    # One that is too large by itself is RE2's to refuse, at once and in its words; what has nine
    # digits or more it may take for text.
    if sum(each for each in counts if not _REPETITION_MAX < each < 10**8) > _REPETITIONS_MAX:
        raise refused(
            f"SubscribedTopicRegex `{pattern}` repeats too often: the counts in its repetitions"
            f" may come to {_REPETITIONS_MAX} together."
        )


def refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


@dataclass(slots=True)
class Search:
    """What patterns match among these topics.

    Patterns in `known` are up to date with the topics `seen`: only what came since is matched.
    """

    patterns: Collection[str]
    topics: Collection[str]
    seen: Collection[str]
    known: Mapping[str, ResolvedPattern]
    is_allowed: Callable[[str], bool]
    # What has been done since the last piece ended.
    steps: int = 0

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
                yield from self._work(_STEPS_PER_NAME_KNOWN * len(known.topics))
                found[pattern] = (known.topics & all_names) | new
        return found

    def _work(self, steps: int) -> Generator[None, None, None]:
        """Count what comes next, in a new piece where it does not fit."""
        if self.steps and self.steps + steps > PIECE_STEPS:
            yield
            self.steps = 0
        self.steps += steps

    def _matches(self, pattern: str, names: Collection[str]) -> Generator[None, None, set[str]]:
        matches: set[str] = set()
        if not names:
            return matches
        try:
            compiled = compile_pattern(pattern)
        except KafkaError as error:
            # Another broker took it: Kafka's library knows some that this one does not.
            _log.warning("pattern left out reason=%s", error)
            yield from self._work(PIECE_STEPS)
            return matches
        size = compiled.programsize
        yield from self._work(_STEPS_PER_INSTRUCTION_COMPILED * size)
        for name in names:
            steps = _STEPS_PER_NAME + size * len(name)
            if self.steps + steps > PIECE_STEPS:
                yield
                self.steps = 0
            self.steps += steps
            if compiled.fullmatch(name.encode()) and self.is_allowed(name):
                matches.add(name)
        return matches
