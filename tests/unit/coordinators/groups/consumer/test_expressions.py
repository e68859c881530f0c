"""Regular expressions over topic names: what is taken, and how much is done at a stretch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import re2

from tidelog.coordinators.groups.consumer.expressions import (
    Found,
    ResolvedPattern,
    Search,
    compile_pattern,
)
from tidelog.errors import ErrorCode, KafkaError


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What RE2 was given to compile."""
    given: list[bytes] = []
    compile_ = re2.compile

    def noted(pattern: bytes, options: Any) -> Any:
        given.append(pattern)
        return compile_(pattern, options)

    monkeypatch.setattr(re2, "compile", noted)
    compile_pattern.cache_clear()
    yield given
    compile_pattern.cache_clear()


def search_all(search: Search, log: list[list[str]]) -> Found:
    """Do all of a search; the names that matched in each piece go to the log."""
    search.is_allowed = lambda name: not log[-1].append(name)
    log.append([])
    pieces = search.pieces()
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            found: Found = end.value
            return found
        log.append([])


def new_search(patterns: list[str], topics: list[str], **more: Any) -> Search:
    return Search(patterns, topics, more.get("seen", ()), more.get("known", {}), lambda _: True)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\pL" * 600,
        "(?i)" + r"\PL" * 300,
        r"[\p{Greek}]",
        "[ab]{0,99}" * 6,
        "a{1000}" * 100,
        "a{" + "9" * 1000 + "}",
        "x" * 2_049,
    ],
)
def test_what_takes_long_to_compile_is_refused_before(pattern: str, compiled: list[bytes]) -> None:
    with pytest.raises(KafkaError) as raised:
        compile_pattern(pattern)
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION and not compiled


@pytest.mark.parametrize(
    "pattern", ["(a?){250}", "(?:(?:a{0,30}){0,30}).*x", "|".join(f".*{n}.*" for n in range(200))]
)
def test_what_takes_long_to_match_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError, match="instructions"):
        compile_pattern(pattern)


def test_a_list_of_fifty_names_is_taken() -> None:
    topics = [f"{each * 7919}-of-{each * 104729}-europe.west-orders" for each in range(50)]
    found = search_all(new_search(["|".join(topics)], [*topics, "other"]), [])
    assert set().union(*found.values()) == set(topics)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [("é?abc", True), ("€?abc", True), ("[a-€]bc", True), ("[^é€]bc", True), ("abc|ü", True),
     ("€abc", False), ("[é€]bc", False)],
)  # fmt: skip
def test_characters_that_no_name_has_keep_their_meaning(pattern: str, matches: bool) -> None:
    assert bool(compile_pattern(pattern).fullmatch(b"abc")) is matches


def test_a_slow_pattern_behind_a_quick_one_is_matched_a_few_names_at_a_time() -> None:
    topics = [f"{each:a>249}" for each in range(100)]
    log: list[list[str]] = []
    found = search_all(new_search([".*", "(?:[ab]?){200}.*"], topics), log)
    assert all(len(each) == len(topics) for each in found.values())
    assert max(map(len, log)) > 50
    assert max(map(len, log[-40:])) <= 2


def test_many_ordinary_names_fit_in_a_piece() -> None:
    topics = [f"orders-{each}" for each in range(1_000)]
    log: list[list[str]] = []
    search_all(new_search(["orders-.*"], topics), log)
    assert len(log) < 12


def test_a_pattern_is_compiled_once_for_all_topics_that_come(compiled: list[bytes]) -> None:
    patterns = [f"t-{each}.*" for each in range(20)]
    known = {each: ResolvedPattern(frozenset(), 1, 1) for each in patterns}
    for each in range(10):
        search_all(new_search(patterns, ["a", f"t-{each}"], seen=["a"], known=known), [])
    assert len(compiled) == len(patterns)
