"""What both generators share: source lines, numbered names, and the constants they refer to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class SourceWriter:
    """Collects the body of one function. `run` holds fixed-width fields not yet handled.

    With `in_pieces` the function is a generator that pauses after every element of an array.
    """

    def __init__(
        self, version: int, flexible: bool, names: dict[str, Any], in_pieces: bool
    ) -> None:
        self.version = version
        self.flexible = flexible
        self.names = names
        self.in_pieces = in_pieces
        self.lines: list[str] = []
        self.indent = 1
        self.run: list[tuple[str, str]] = []
        self._numbered = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, prefix: str) -> str:
        """A name that the function does not use yet."""
        self._numbered += 1
        return f"{prefix}{self._numbered}"

    def constant(self, prefix: str, value: Any) -> str:
        """The name under which the function sees a constant."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.name(prefix)
        self.names[name] = value
        return name

    def compile(self, signature: str, label: str) -> Callable[..., Any]:
        """Make the function of the lines collected; `label` is its file name in tracebacks."""
        source = "\n".join([f"def {signature}:", *self.lines])
        # The source is made of declarations in this package and of nothing from outside.
        exec(compile(source, f"<{label}>", "exec"), self.names)  # noqa: S102  # nosec B102
        made: Callable[..., Any] = self.names[signature.partition("(")[0]]
        return made
