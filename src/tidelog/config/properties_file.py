"""Java's properties files, read as Kafka reads them.

A line is blank, a comment (`#` or `!`), or a name and a value parted by `=`, `:` or white space; an
odd number of backslashes at its end joins the next line; `\\uXXXX` and the escapes t, n, r, f are
understood, and a backslash before anything else stands for that. Later lines win over earlier ones.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.errors import ConfigError

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Entry(NamedTuple):
    """One name and its text, with the place it was written at."""

    name: str
    text: str
    place: str


def read_properties(text: str, file: str) -> list[Entry]:
    """The entries of a properties file in the order of the file; ConfigError names the line."""
    entries = []
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    index = 0
    while index < len(lines):
        number = index + 1
        line = lines[index].lstrip(_BLANK)
        index += 1
        # A mere backslash joins nothing: the next line may still be a comment.
        if not line or line[0] in "#!" or line == "\\":
            continue
        while _continues(line):
            line = line[:-1]
            if index == len(lines):
                break
            line += lines[index].lstrip(_BLANK)
            index += 1
        place = f"{file}:{number}"
        name, value = _split(line)
        entries.append(Entry(_unescape(name, place), _unescape(value, place), place))
    return entries


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" and line[end] not in _BLANK:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str, place: str) -> str:
    if "\\" not in text:
        return text
    result = []
    index = 0
    while index < len(text):
        if text[index] != "\\":
            result.append(text[index])
            index += 1
            continue
        escape = text[index + 1 : index + 2]
        if escape == "u":
            result.append(_code_unit(text[index + 2 : index + 6], place))
            index += 6
        else:
            result.append(_ESCAPES.get(escape, escape))
            index += 2
    # Java writes what lies beyond 16 bits as two units.
    return "".join(result).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _code_unit(digits: str, place: str) -> str:
    if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ConfigError(f"{place}: \\u needs four hexadecimal digits")
    return chr(int(digits, 16))
