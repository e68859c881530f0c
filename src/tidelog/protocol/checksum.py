"""CRC-32C of any buffer, by the `crc32c` package's compiled function.

The function is loaded without its package: `import crc32c` also brings a command line and reads the
package's own metadata, which took a fifth of a broker's start. Where the extension is not found in
its usual place the package is imported as always.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, PathFinder
from importlib.util import module_from_spec

Checksum = Callable[..., int]


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    for directory in (package and package.submodule_search_locations) or ():
        finder = FileFinder(directory, (ExtensionFileLoader, EXTENSION_SUFFIXES))
        spec = finder.find_spec("_crc32c")
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            function: Checksum = module.crc32c
            return function
    from crc32c import crc32c as function

    return function


crc32c: Checksum = _load()
