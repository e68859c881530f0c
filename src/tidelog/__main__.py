"""`python -m tidelog` is the `tidelog` command, and this is where both begin.

The garbage collector waits until much has piled up: a command imports a hundred modules, which
stay, and looking through them again and again takes a tenth of its time. So does the last look when
the interpreter ends, at which everything goes anyway.
"""

from __future__ import annotations

import gc
from typing import Final, NoReturn

_OBJECTS_BETWEEN_LOOKS: Final = 100_000


def run() -> NoReturn:
    """Run the command line as a process of its own."""
    gc.set_threshold(_OBJECTS_BETWEEN_LOOKS)
    # Here, so that its imports are not looked through either.
    from tidelog.cli.main import main

    try:
        main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    run()
