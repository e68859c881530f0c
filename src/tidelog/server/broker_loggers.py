"""The levels of this broker's loggers, under Kafka's names for levels.

They hold for this process: a start brings back those that it was started with, as in Kafka.
"""

from __future__ import annotations

import logging
from typing import Final

from tidelog.cluster.commands import AlterConfigs, ConfigChange
from tidelog.config import DescribedSetting, Source
from tidelog.config.setting import Kind
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import ConfigOperation

ROOT: Final = "root"
_OURS: Final = "tidelog"
_OTHER_OPERATIONS: Final = {
    each.value: each.name for each in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT)
}
_LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG // 2,
    "WARN": logging.WARNING,
}


def describe_loggers() -> list[DescribedSetting]:
    """Every logger with the level that counts for it."""
    return [_described(name, logger) for name, logger in sorted(_loggers().items())]


def alter_loggers(command: AlterConfigs) -> None:
    """Set levels, all of them or none; KafkaError, in Kafka's words, where one cannot be set."""
    loggers = _loggers()
    levels = [_new_level(change, loggers) for change in command.changes]
    if not command.validate_only:
        for change, level in zip(command.changes, levels, strict=True):
            loggers[change.name].setLevel(level)


def _loggers() -> dict[str, logging.Logger]:
    known = logging.root.manager.loggerDict
    ours = {
        name: logger
        for name, logger in known.items()
        if isinstance(logger, logging.Logger) and name.split(".")[0] == _OURS
    }
    return {ROOT: logging.root, **ours}


def _new_level(change: ConfigChange, loggers: dict[str, logging.Logger]) -> int:
    if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{_OTHER_OPERATIONS.get(change.operation, change.operation)} operation is not allowed"
            " for the BROKER_LOGGER resource",
        )
    if change.name not in loggers:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.operation == ConfigOperation.DELETE:
        if change.name == ROOT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Removing the log level of the root logger is not allowed",
            )
        return logging.NOTSET
    level = _LEVELS.get(change.value or "")
    if level is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported"
            f" log level. Valid log levels are {', '.join(_LEVELS)}",
        )
    return level


def _described(name: str, logger: logging.Logger) -> DescribedSetting:
    effective = logger.getEffectiveLevel()
    level = max(
        (name for name, value in _LEVELS.items() if value <= max(effective, _LEVELS["TRACE"])),
        key=_LEVELS.__getitem__,
    )
    return DescribedSetting(
        name=name,
        value=level,
        source=Source.BROKER_LOGGER,
        read_only=False,
        is_sensitive=False,
        type=int(Kind.UNKNOWN),
        documentation="",
        synonyms=(),
    )
