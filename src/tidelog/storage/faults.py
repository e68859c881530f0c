"""What a failing disk does to a log: it refuses for now, or takes the log offline for good.

A passing fault (the disk is full, or there are no free descriptors) refuses what was asked and
changes nothing, so the same call works once the cause is gone. Every other fault takes the log
offline. A sync is stricter: it may have dropped what it could not write, whatever the reason, so
only a failure to open what is to be synced passes there.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from tidelog.errors import ErrorCode, KafkaError, StorageError

logger = logging.getLogger(__name__)

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
PASSING = DISK_FULL | OUT_OF_DESCRIPTORS


class LogOfflineError(KafkaError, StorageError):
    """The disk failed under the log: nothing more is written to it until a restart."""


class LogFaults:
    """Whether the disk has failed under one log."""

    __slots__ = ("_directory", "_on_offline", "fatal")

    def __init__(self, directory: str, on_offline: Callable[[str, OSError], None]) -> None:
        self._directory = directory
        self._on_offline = on_offline
        # What took the log offline.
        self.fatal: OSError | None = None

    def check(self) -> None:
        """LogOfflineError once the disk has failed."""
        if self.fatal is not None:
            self.fail(self.fatal)

    def note(self, error: OSError) -> None:
        """Nothing that was not synced can be relied on any more."""
        if self.fatal is None:
            self.fatal = error
            logger.error("log offline directory=%s error=%s", self._directory, error)
            self._on_offline(self._directory, error)

    def fail(self, error: OSError) -> NoReturn:
        """The disk has failed."""
        self.note(error)
        raise LogOfflineError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self._directory} is offline: {self.fatal}"
        ) from error

    def refuse_or_fail(self, error: OSError) -> NoReturn:
        """A passing fault is a refusal; any other takes the log offline."""
        if error.errno in PASSING:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.fail(error)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """For what can be tried again: `refuse_or_fail` where the block raises OSError."""
        try:
            yield
        except OSError as error:
            self.refuse_or_fail(error)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """For what cannot be left half done: `fail` where the block raises OSError."""
        try:
            yield
        except OSError as error:
            self.fail(error)
