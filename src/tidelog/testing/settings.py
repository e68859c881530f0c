"""What the brokers of tests are started with, and how a test says otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tidelog.config.setting import format_value
from tidelog.errors import ConfigError

StrPath: TypeAlias = str | os.PathLike[str]
SettingValue: TypeAlias = StrPath | bool | int | float | Sequence[StrPath]


def setting_texts(settings: Mapping[str, SettingValue] | None) -> dict[str, str]:
    """The settings as the text that a broker reads; the table says whether they fit."""
    return {name: _setting_text(name, value) for name, value in (settings or {}).items()}


def _setting_text(name: object, value: object) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"the name of a setting is text, not {name!r}")
    if isinstance(value, list | tuple):
        return ",".join(path_text(name, each) for each in value)
    if isinstance(value, bool | int | float):
        return str(format_value(value))
    return path_text(name, value)


def path_text(name: str, value: object) -> str:
    """A path or text as text; ConfigError names what is neither."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ConfigError(
            f"{name}: {value!r} is a {type(value).__name__}; give text, a number, a boolean, a path"
            " or a list of these, or leave it out for its default"
        )
    return text
