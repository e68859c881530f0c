"""One mapping of a pipeline's file, asked for its parts by name and type.

Every fault is noted with its place and reading goes on, so that one run names them all; a name that
nobody asked for is unknown, and the nearest one that was is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from tidelog.config.table import hint
from tidelog.config.yaml_tree import Mapping as MappingNode
from tidelog.config.yaml_tree import Mark, Node, Scalar, Sequence
from tidelog.durations import parse_duration_ms

E = TypeVar("E", bound=StrEnum)
# Beyond it Spark's intervals overflow, and no delay in a file is meant so.
DURATION_MS_MAX: Final = 36_500 * 86_400_000
_VARIABLE: Final = re.compile(r"\$(\$)?\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\})?")


@dataclass(slots=True)
class Problems:
    """What is wrong, in the order in which it was found."""

    lines: list[str] = field(default_factory=list)

    def add(self, mark: Mark, text: str) -> None:
        self.lines.append(f"{mark}: {text}")


def substitute(node: Node, environment: Mapping[str, str], problems: Problems) -> None:
    """Put `${NAME}` and `${NAME:-default}` from the environment in place; `$${` stands for `${`."""
    if isinstance(node, Scalar):
        if "${" in node.text:
            node.text = _substituted(node, environment, problems)
        return
    children = node.items if isinstance(node, Sequence) else node.values.values()
    for child in children:
        substitute(child, environment, problems)


def _substituted(scalar: Scalar, environment: Mapping[str, str], problems: Problems) -> str:
    def value(found: re.Match[str]) -> str:
        escaped, name, _, default = found.groups()
        if escaped:
            return found[0][1:]
        if name is None:
            problems.add(scalar.mark, "${ without a name and }: write ${NAME} or ${NAME:-default}")
            return found[0]
        # As in a shell, a variable that is empty counts as not set where a default is given.
        if default is not None:
            return environment.get(name) or str(default)
        if name not in environment:
            problems.add(
                scalar.mark,
                f"the environment variable {name} is not set; ${{{name}:-…}} gives a default",
            )
        return environment.get(name, "")

    return _VARIABLE.sub(value, scalar.text)


class Section:
    """A mapping that is being read; `what` names it in errors.

    One that a name stands for, such as a source, has that `name` and its `place`.
    """

    name = ""

    def __init__(self, node: MappingNode, what: str, problems: Problems) -> None:
        self.node = node
        self.what = what
        self.problems = problems
        self.place = node.mark
        self._asked: list[str] = []

    @property
    def mark(self) -> Mark:
        return self.node.mark

    def __contains__(self, name: str) -> bool:
        return name in self.node.values

    def get(self, name: str) -> Node | None:
        """The value of a name, which is known from now on."""
        self._asked.append(name)
        return self.node.values.get(name)

    def error(self, name: str, text: str) -> None:
        """Note a fault of one of the names."""
        self.problems.add(self.node.keys.get(name, self.mark), f"{name}: {text}")

    def scalar(self, name: str, *, required: bool = False) -> Scalar | None:
        node = self.get(name)
        if node is None:
            if required:
                self.problems.add(self.mark, f"{self.what} needs {name}")
            return None
        if not isinstance(node, Scalar):
            self.problems.add(node.mark, f"{name} is a single value")
            return None
        if not node.text.strip():
            self.problems.add(node.mark, f"{name} has no value")
            return None
        return node

    def text(self, name: str, default: str = "", *, required: bool = False) -> str:
        found = self.scalar(name, required=required)
        return default if found is None else found.text.strip()

    def word(self, name: str, *words: str) -> str:
        """One of some words; the first where none is given."""
        found = self.text(name, words[0])
        if found not in words:
            self.error(name, f"'{found}' is none of {', '.join(words)}")
        return found

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        found = self.scalar(name)
        if found is None:
            return default
        digits = found.text.strip().replace("_", "")
        if not digits.isdecimal() or int(digits) < least:
            self.problems.add(found.mark, f"{name} is a whole number from {least} on")
            return default
        return int(digits)

    def duration_ms(self, name: str, default: int, *, required: bool = False) -> int:
        found = self.scalar(name, required=required)
        if found is None:
            return default
        duration_ms = parse_duration_ms(found.text.strip())
        if duration_ms is None:
            self.problems.add(
                found.mark, f"'{found.text}' is no duration; write 500ms, 30s, 15m, 1h or 7d"
            )
            return default
        if duration_ms > DURATION_MS_MAX:
            self.problems.add(found.mark, f"'{found.text}' is longer than 36500d, the most")
            return default
        return duration_ms

    def choice(self, name: str, kind: type[E], default: E) -> E:
        found = self.scalar(name)
        return default if found is None else self.chosen(found, kind, default)

    def chosen(self, found: Scalar, kind: type[E], default: E) -> E:
        """One of the words of `kind`."""
        names = [str(each) for each in kind]
        word = found.text.strip()
        if word not in names:
            self.problems.add(
                found.mark, f"'{word}' is none of {', '.join(names)}{hint(word, names)}"
            )
            return default
        return kind(word)

    def texts(self, name: str) -> list[Scalar]:
        """A list of single values."""
        node = self.get(name)
        if node is None:
            return []
        if not isinstance(node, Sequence):
            self.problems.add(node.mark, f"{name} is a list: [a, b]")
            return []
        items = [item for item in node.items if isinstance(item, Scalar) and item.text.strip()]
        if len(items) < len(node.items) or not items:
            self.problems.add(node.mark, f"{name} is a list of single values, at least one")
        return items

    def pairs(self, name: str) -> dict[str, Scalar]:
        """A mapping of names to single values."""
        node = self.get(name)
        if node is None:
            return {}
        if not isinstance(node, MappingNode):
            self.problems.add(node.mark, f"{name} is a mapping of names to values")
            return {}
        found = {}
        for key, value in node.values.items():
            if isinstance(value, Scalar):
                found[key] = value
            else:
                self.problems.add(value.mark, f"{name}: {key} is a single value")
        return found

    def options(self, name: str) -> dict[str, str]:
        return {key: value.text for key, value in self.pairs(name).items()}

    def section(self, name: str, what: str) -> Section | None:
        node = self.get(name)
        if node is None:
            return None
        if not isinstance(node, MappingNode):
            self.problems.add(node.mark, f"{what} is a mapping")
            return None
        return Section(node, what, self.problems)

    def sections(self, name: str, what: str) -> Iterator[Section]:
        """Named sections, as sources, steps and targets are."""
        holder = self.section(name, name)
        if holder is None:
            return
        for key, value in holder.node.values.items():
            if isinstance(value, MappingNode):
                each = Section(value, f"{what} {key}", self.problems)
                each.name, each.place = key, holder.node.keys[key]
                yield each
            else:
                self.problems.add(value.mark, f"{what} {key} is a mapping")

    def one_of(self, names: Iterable[str]) -> str | None:
        """The one name of several that is there; none or two of them is a fault."""
        names = list(names)
        there = [name for name in names if name in self.node.values]
        if len(there) == 1:
            return there[0]
        self._asked += names
        listed = f"{', '.join(names[:-1])} or {names[-1]}"
        if there:
            self.error(there[1], f"{self.what} has one of {listed}, not several")
        else:
            self.problems.add(self.mark, f"{self.what} needs {listed}")
        return None

    def finish(self) -> None:
        """Note every name that was not asked for."""
        for name, value in self.node.values.items():
            if name not in self._asked:
                near = hint(name, self._asked)
                if not near and isinstance(value, Scalar) and not value.text:
                    near = "; a text with commas needs quotes inside { }"
                self.problems.add(self.node.keys[name], f"{self.what} has no {name}{near}")
