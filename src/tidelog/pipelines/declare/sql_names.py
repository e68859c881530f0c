"""The relations that a SQL statement reads, found without Spark, by sqlglot.

A name counts unless it is a common table expression that is visible where it stands, a function
that gives a table, or a name with dots, which is left to Spark's catalog.

Spark accepts more than sqlglot does. Where sqlglot finds no query, the names are guessed from the
words, and the answer says so: Spark decides.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlglot import Token, exp

# What a relation cannot be called: where a relation may stand, these words mean something else.
RESERVED: Final = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"}
    | {"WINDOW", "QUALIFY", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT", "ON", "USING"}
    | {"LATERAL", "STREAM", "TABLE", "AS", "FROM", "JOIN", "VALUES", "WITH"}
)
# Behind these `TABLE name` is a query, and `STREAM name` a relation.
_BEFORE_TABLE: Final = frozenset(
    {"(", ")", ",", ";", "UNION", "ALL", "DISTINCT", "EXCEPT", "INTERSECT", "MINUS"}
)
_BEFORE_STREAM: Final = frozenset({"(", ",", "FROM", "JOIN"})
# A list of relations, up to the word that ends it, and the names in it.
_LIST: Final = re.compile(
    rf"\b(?:FROM|JOIN|TABLE|STREAM)\b(.*?)(?=\b(?:{'|'.join(RESERVED - {'AS'})})\b|\|>|$)",
    re.IGNORECASE | re.DOTALL,
)
_NAME: Final = re.compile(r"(?:^|[,(])\s*`?(\w+)`?(?!\w|\s*[.(])")
# It would say on the terminal what it does not know.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


@dataclass(slots=True, frozen=True)
class Reference:
    """A relation's name and where it stands in the statement, counted from one."""

    name: str
    line: int
    column: int


@dataclass(slots=True, frozen=True)
class References:
    """The relations that a statement reads, in its order, each once.

    Where they are not `certain`, some of them may be columns, or words of SQL.
    """

    found: list[Reference]
    certain: bool


def references(sql: str) -> References:
    """The relations that `sql` reads."""
    try:
        places, certain = sorted(_read(sql)), True
    except Exception:
        # Nothing that goes wrong in sqlglot may refuse what Spark would take.
        places, certain = list(_guess(sql)), False
    found: dict[str, Reference] = {}
    for start, name in places:
        line = sql.count("\n", 0, start) + 1
        column = start - sql.rfind("\n", 0, start)
        found.setdefault(name.lower(), Reference(name, line, column))
    return References(list(found.values()), certain)


def _read(sql: str) -> Iterator[tuple[int, str]]:
    """Where a statement names relations that it reads."""
    from sqlglot import Dialect, exp

    dialect = Dialect.get_or_raise("spark")
    tokens = _as_parsed(dialect.tokenize(sql), dialect.parser_class.TABLE_ALIAS_TOKENS)
    for statement in filter(None, dialect.parser().parse(list(tokens), sql)):
        if not isinstance(statement, exp.Query | exp.Values):
            raise ValueError("not a query")
        for table in statement.find_all(exp.Table):
            is_hint = isinstance(table.parent, exp.JoinHint)
            if isinstance(table.this, exp.Identifier) and not table.db and not is_hint:
                start, end = table.this.meta["start"], table.this.meta["end"]
                # What sqlglot has made up for itself is not in the text.
                text = sql[start : end + 1].strip("`").replace("``", "`")
                if text == table.name and not _is_common(table):
                    yield start, table.name


def _as_parsed(tokens: list[Token], names: Collection[object]) -> Iterator[Token]:
    """The words of a statement, with three things of Spark as sqlglot knows them."""
    from sqlglot import Token, TokenType

    texts = [";", *(token.text.upper() for token in tokens), "", ""]
    kinds = [*(token.token_type for token in tokens), None]
    for index, token in enumerate(tokens):
        before, text, behind_next = texts[index], texts[index + 1], texts[index + 3]
        names_relation = kinds[index + 1] in names or kinds[index + 1] is TokenType.IDENTIFIER
        if text == "TABLE" and before in _BEFORE_TABLE and names_relation:
            yield Token(TokenType.SELECT, "SELECT")
            yield Token(TokenType.STAR, "*")
            yield Token(TokenType.FROM, "FROM")
        elif text == "WINDOW" and behind_next != "AS":
            # The function, or its column.
            yield Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)
        elif text == "STREAM" and before in _BEFORE_STREAM:
            if not names_relation and kinds[index + 1] is not TokenType.L_PAREN:
                yield token
        else:
            yield token


def _is_common(table: exp.Table) -> bool:
    """Whether a common table expression of this name is visible where the table stands.

    It is visible behind its own definition; in it too where it is recursive.
    """
    from sqlglot import exp

    name = table.name.lower()
    child: exp.Expr = table
    while (parent := child.parent) is not None:
        if isinstance(parent, exp.With):
            visible = parent.expressions[: (child.index or 0) + bool(parent.recursive)]
        else:
            visible = [] if isinstance(child, exp.With) else getattr(parent, "ctes", [])
        if any(each.alias.lower() == name for each in visible):
            return True
        child = parent
    return False


def _guess(sql: str) -> Iterator[tuple[int, str]]:
    """The words that stand where a relation may stand."""
    for each in _LIST.finditer(sql):
        for name in _NAME.finditer(each[1]):
            yield each.start(1) + name.start(1), name[1]
