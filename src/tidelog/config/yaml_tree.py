"""YAML read strictly into a tree that knows where everything was written.

A document is one mapping. A scalar is the text as it was written: nothing becomes a boolean, a
number or a date on the way. Names given twice in a mapping, aliases, tags and further documents are
errors, which name their line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from tidelog.errors import ConfigError

DEPTH_MAX: Final = 16
_LITERAL: Final = "|"
_QUOTES: Final = ("'", '"')
_ESCAPE: Final = re.compile(r"\\U([0-9A-Fa-f]{8})")


class Mark(NamedTuple):
    """A place in a file; line and column count from one."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class Scalar:
    """A text and where it begins; `literal_indent` is that of a block's lines (`|`), else None."""

    text: str
    mark: Mark
    literal_indent: int | None = None

    def locate(self, line: int, column: int) -> Mark:
        """Where in the file a line and column of the text stand, both counted from one.

        Exact for a block and for a text on one line; what is folded begins where it begins.
        """
        if self.literal_indent is not None:
            return Mark(self.mark.file, self.mark.line + line, self.literal_indent + column)
        if line > 1 or "\n" in self.text:
            return self.mark
        return self.mark._replace(column=self.mark.column + column - 1)


@dataclass(slots=True)
class Sequence:
    """A list and where it begins."""

    items: list[Node]
    mark: Mark


@dataclass(slots=True)
class Mapping:
    """Names with their values in the order of the file; `keys` holds where each name stands."""

    values: dict[str, Node]
    keys: dict[str, Mark]
    mark: Mark


Node: TypeAlias = Scalar | Sequence | Mapping


def read_tree(text: str, file: str) -> Mapping:
    """The document in `text`, an empty mapping where there is none; ConfigError names the line."""
    try:
        return _Reader(file, text).read(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{file}{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: {error}") from None
    except (OverflowError, ValueError):
        # Of what is written in a text, its scanner takes only this as it comes.
        place = f"{file}:{_line_of_wrong_escape(text)}"
        raise ConfigError(f"{place}: there is no character of this number") from None


def _line_of_wrong_escape(text: str) -> int:
    found = (each for each in _ESCAPE.finditer(text) if int(each[1], 16) > sys.maxunicode)
    wrong = next(found, None)
    return text.count("\n", 0, wrong.start()) + 1 if wrong is not None else 1


@dataclass(slots=True)
class _Reader:
    file: str
    text: str
    lines: list[str] = field(default_factory=list)

    def read(self, events: Iterator[Any]) -> Mapping:
        self.lines = self.text.splitlines()
        document = Mapping({}, {}, Mark(self.file, 1, 1))
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._error(event, "a second document begins here")
            elif isinstance(event, yaml.NodeEvent):
                self._check_plain(event)
                if isinstance(event, yaml.ScalarEvent) and event.value == "":
                    continue
                if not isinstance(event, yaml.MappingStartEvent):
                    raise self._error(event, "a mapping of names to values is expected")
                document = self._mapping(event, events, 1)
        return document

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        self._check_plain(event)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, events, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            self._check_depth(depth)
            items = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                items.append(self._node(item, events, depth + 1))
            return Sequence(items, self._mark(event))
        return self._scalar(event)

    def _mapping(self, start: Any, events: Iterator[Any], depth: int) -> Mapping:
        self._check_depth(depth)
        mapping = Mapping({}, {}, self._mark(start))
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            self._check_plain(key)
            if not isinstance(key, yaml.ScalarEvent) or not key.value:
                raise self._error(key, "a name is expected")
            first = mapping.keys.get(key.value)
            if first is not None:
                place = f"{first.file}:{first.line}"
                raise self._error(key, f"{key.value} was set before at {place}")
            mapping.keys[key.value] = self._mark(key)
            mapping.values[key.value] = self._node(next(events), events, depth + 1)
        return mapping

    def _scalar(self, event: Any) -> Scalar:
        mark = self._mark(event)
        if event.style == _LITERAL:
            return Scalar(event.value, mark, self._indent_below(mark.line))
        if event.style in _QUOTES:
            mark = mark._replace(column=mark.column + 1)
        return Scalar(event.value, mark)

    def _indent_below(self, line: int) -> int:
        """How far the first line of a block is indented that is not blank."""
        for text in self.lines[line:]:
            if text.strip():
                return len(text) - len(text.lstrip(" "))
        return 0

    def _check_depth(self, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise ConfigError(f"{self.file}: mappings are nested more than {DEPTH_MAX} deep")

    def _check_plain(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise self._error(event, "aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise self._error(event, f"the tag {event.tag} is not allowed")

    def _mark(self, event: Any) -> Mark:
        start = event.start_mark
        return Mark(self.file, start.line + 1, start.column + 1)

    def _error(self, event: Any, text: str) -> ConfigError:
        return ConfigError(f"{self.file}:{event.start_mark.line + 1}: {text}")
