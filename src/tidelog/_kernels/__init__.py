"""Kernels that look into records: compiled where a compiler was at hand, else plain Python."""

from __future__ import annotations

from typing import Final

from tidelog._kernels import records

COMPILED: Final[bool] = not records.__file__.endswith(".py")
