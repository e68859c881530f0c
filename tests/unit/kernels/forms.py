"""The forms of the kernels that run here: always the plain one, and the compiled one if built."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tidelog import _kernels
from tidelog._kernels import batch_walk

SOURCE = Path(_kernels.__file__).with_name("records.py")


def _load_plain(source: Path) -> ModuleType:
    """Kernels from their source, under another name, beside the compiled ones."""
    name = f"tidelog._kernels.{source.stem}_uncompiled"
    specification = importlib.util.spec_from_file_location(name, source)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


PLAIN = _load_plain(SOURCE)
FORMS: dict[str, ModuleType] = {"plain": PLAIN}
BATCH_WALK_FORMS: dict[str, ModuleType] = {
    "plain": _load_plain(SOURCE.with_name("batch_walk.py")),
}
if _kernels.COMPILED:
    FORMS["compiled"] = _kernels.records
    BATCH_WALK_FORMS["compiled"] = batch_walk
