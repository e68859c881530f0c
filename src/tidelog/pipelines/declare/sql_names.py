"""The relations that a SQL statement reads, found without Spark.

It looks at words, brackets and commas only: a name counts where a relation may stand (after FROM
and JOIN, and after a comma of a FROM list) and is neither a common table expression, nor a function
that gives a table, nor a name with dots, which is left to Spark's catalog. A common table
expression hides a relation of its name only behind its own definition, and only in its brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<skip> \s+ | --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<string> [rR]?'(?:[^'\\]|\\.)*' | [rR]?"(?:[^"\\]|\\.)*" )
    | `(?P<quoted> (?:[^`]|``)* )`
    | (?P<word> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<other> [^\s] )
    """,
    re.VERBOSE | re.DOTALL,
)
# Words that end a list of relations.
_ENDS: Final = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"}
    | {"WINDOW", "QUALIFY", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT", "ON", "USING"}
)
# Words that may stand between FROM or JOIN and a relation.
_BEFORE: Final = frozenset(("LATERAL", "STREAM", "TABLE"))
# What a relation cannot be called, for where it may stand these words mean something else.
RESERVED: Final = _ENDS | _BEFORE | frozenset(("AS", "FROM", "JOIN", "VALUES", "WITH"))


@dataclass(slots=True, frozen=True)
class Reference:
    """A relation's name and where it stands in the statement, counted from one."""

    name: str
    line: int
    column: int


@dataclass(slots=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "word" else ""


@dataclass(slots=True)
class _Frame:
    """What is known of one pair of brackets."""

    select: bool = False
    in_from: bool = False
    expecting: bool = False
    defining: bool = False
    # The common table expressions that are known here, and the one that the brackets define.
    common: set[str] = field(default_factory=set)
    defines: str = ""


@dataclass(slots=True)
class _Reader:
    tokens: list[_Token]
    frames: list[_Frame] = field(default_factory=lambda: [_Frame()])
    found: list[_Token] = field(default_factory=list)

    def read(self) -> list[_Token]:
        for index, token in enumerate(self.tokens):
            frame = self.frames[-1]
            if token.text == "(" and token.kind == "other":
                frame.expecting = False
                self.frames.append(_Frame(defines=self._defined(frame, index)))
            elif token.text == ")" and token.kind == "other":
                if len(self.frames) > 1:
                    self.frames.pop()
                    self.frames[-1].common.add(frame.defines)
            else:
                self._step(frame, index, token)
        return self.found

    def _step(self, frame: _Frame, index: int, token: _Token) -> None:
        word = token.word
        if word == "SELECT":
            frame.select, frame.in_from, frame.expecting = True, False, False
            frame.defining = False
        elif word == "FROM" and self._opens_list(frame, index):
            frame.in_from = frame.expecting = True
        elif word == "JOIN" and frame.in_from:
            frame.expecting = True
        elif word == "WITH" and not frame.select:
            frame.defining = True
        elif word in _ENDS:
            # A join may follow its predecessor's condition, so only the list's commas end here.
            frame.expecting = False
            frame.in_from = frame.in_from and word in ("ON", "USING")
        elif token.text == "," and token.kind == "other":
            frame.expecting = frame.in_from
        elif frame.expecting and token.kind in ("word", "quoted"):
            if word in _BEFORE and self._next(index) not in (",", ")", ""):
                return
            frame.expecting = False
            hidden = any(token.text.lower() in each.common for each in self.frames)
            if self._next(index) not in (".", "(") and not hidden:
                self.found.append(token)

    def _opens_list(self, frame: _Frame, index: int) -> bool:
        """`extract(day FROM at)` and `IS DISTINCT FROM` name no relation."""
        before = self.tokens[index - 1] if index else None
        if before is not None and before.word == "DISTINCT" and frame.select:
            return self.tokens[index - 2].word == "SELECT"
        first = before is None or before.text == "("
        return frame.select or first

    def _defined(self, frame: _Frame, index: int) -> str:
        """The name in `name AS (` and `name (a, b) AS (` after WITH; empty for other brackets."""
        back = index - 1
        if not frame.defining or back < 1 or self.tokens[back].word != "AS":
            return ""
        back -= 1
        if self.tokens[back].text == ")":
            while back > 0 and self.tokens[back].text != "(":
                back -= 1
            back -= 1
        if back < 0 or self.tokens[back].kind not in ("word", "quoted"):
            return ""
        name = self.tokens[back].text.lower()
        if any(token.word == "RECURSIVE" for token in self.tokens[:back]):
            frame.common.add(name)  # it may read itself
        return name

    def _next(self, index: int) -> str:
        return self.tokens[index + 1].text if index + 1 < len(self.tokens) else ""


def references(sql: str) -> list[Reference]:
    """The relations that `sql` reads, in its order, each once."""
    found: dict[str, Reference] = {}
    for token in _Reader(list(_tokens(sql))).read():
        if token.text.lower() not in found:
            line = sql.count("\n", 0, token.position) + 1
            column = token.position - (sql.rfind("\n", 0, token.position) + 1) + 1
            found[token.text.lower()] = Reference(token.text, line, column)
    return list(found.values())


def _tokens(sql: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup
        if kind is not None and kind != "skip":
            yield _Token(kind, match[kind], match.start())
