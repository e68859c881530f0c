"""The seam for chance: identifiers and jitter are drawn from here and nowhere else."""

from __future__ import annotations

import os
import random
import uuid
from typing import Protocol


class Random(Protocol):
    """A source of random values; a seeded one makes a whole run repeatable."""

    def uuid(self) -> uuid.UUID: ...

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound)."""
        ...


class SystemRandom:
    """Random values from the operating system."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def uuid(self) -> uuid.UUID:
        # Kafka's clients print ids in URL-safe base64; a leading dash would look like a flag.
        while True:
            value = uuid.UUID(bytes=os.urandom(16), version=4)
            if value.bytes[0] >> 2 != 62:
                return value

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)
