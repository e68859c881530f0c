"""YAML files of settings.

Nested mappings are joined with dots, so that `log: {segment.bytes: 1048576}` sets
`log.segment.bytes`, and a sequence is a list. What the reader of the tree refuses is an error here
too, and so is a name that is set twice in different ways.
"""

from __future__ import annotations

from tidelog.config.properties_file import Entry
from tidelog.config.yaml_tree import Mapping, Mark, Node, Scalar, Sequence, read_tree
from tidelog.errors import ConfigError


def read_yaml(text: str, file: str) -> list[Entry]:
    """The entries of a YAML file in the order of the file; ConfigError names the line."""
    entries: dict[str, Entry] = {}
    _flatten(read_tree(text, file), "", entries)
    return list(entries.values())


def _flatten(mapping: Mapping, prefix: str, entries: dict[str, Entry]) -> None:
    for key, value in mapping.values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            _flatten(value, f"{name}.", entries)
            continue
        place = _place(mapping.keys[key])
        if name in entries:
            raise ConfigError(f"{place}: {name} was set before at {entries[name].place}")
        entries[name] = Entry(name, _text(value), place)


def _text(value: Node) -> str:
    if isinstance(value, Scalar):
        return value.text
    assert isinstance(value, Sequence)
    items = []
    for item in value.items:
        if not isinstance(item, Scalar):
            raise ConfigError(f"{_place(item.mark)}: an item of a list must be a single value")
        items.append(item.text)
    return ",".join(items)


def _place(mark: Mark) -> str:
    return f"{mark.file}:{mark.line}"
