"""YAML files of settings, read strictly.

A document is one mapping of names to values; nested mappings are joined with dots, so that
`log: {segment.bytes: 1048576}` sets `log.segment.bytes`, and a sequence is a list. A scalar is the
text as it was written: nothing becomes a boolean, a number or a date on the way. Names given twice,
aliases, tags and further documents are errors, which name their line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from tidelog.config.properties_file import Entry
from tidelog.errors import ConfigError

DEPTH_MAX: Final = 16


def read_yaml(text: str, file: str) -> list[Entry]:
    """The entries of a YAML file in the order of the file; ConfigError names the line."""
    try:
        return _Reader(file).read(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{file}{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: {error}") from None


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._entries: dict[str, Entry] = {}

    def read(self, events: Iterator[Any]) -> list[Entry]:
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._error(event, "a second document begins here")
            elif isinstance(event, yaml.MappingStartEvent):
                self._check_plain(event)
                self._read_mapping(events, "", 1)
            elif isinstance(event, yaml.NodeEvent) and not _is_empty(event):
                raise self._error(event, "a mapping of names to values is expected")
        return list(self._entries.values())

    def _read_mapping(self, events: Iterator[Any], prefix: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise ConfigError(f"{self._file}: mappings are nested more than {DEPTH_MAX} deep")
        for key in events:
            if isinstance(key, yaml.MappingEndEvent):
                return
            self._check_plain(key)
            if not isinstance(key, yaml.ScalarEvent) or not key.value:
                raise self._error(key, "a name is expected")
            name = f"{prefix}{key.value}"
            value = next(events)
            self._check_plain(value)
            if isinstance(value, yaml.MappingStartEvent):
                self._read_mapping(events, f"{name}.", depth + 1)
            elif isinstance(value, yaml.SequenceStartEvent):
                self._add(key, name, ",".join(self._read_sequence(events)))
            else:
                self._add(key, name, value.value)

    def _read_sequence(self, events: Iterator[Any]) -> Iterator[str]:
        for item in events:
            if isinstance(item, yaml.SequenceEndEvent):
                return
            self._check_plain(item)
            if not isinstance(item, yaml.ScalarEvent):
                raise self._error(item, "an item of a list must be a single value")
            yield item.value

    def _add(self, key: Any, name: str, text: str) -> None:
        first = self._entries.get(name)
        if first is not None:
            raise self._error(key, f"{name} was set before at {first.place}")
        self._entries[name] = Entry(name, text, self._place(key))

    def _check_plain(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise self._error(event, "aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise self._error(event, f"the tag {event.tag} is not allowed")

    def _place(self, event: Any) -> str:
        return f"{self._file}:{event.start_mark.line + 1}"

    def _error(self, event: Any, text: str) -> ConfigError:
        return ConfigError(f"{self._place(event)}: {text}")


def _is_empty(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == ""
