"""Faults of a disk that pass by themselves: it is full, or there are no free descriptors.

A passing fault refuses what was asked and changes nothing, so the same call works once the cause is
gone. Every other fault takes the log offline. A sync is stricter: it may have dropped what it could
not write, whatever the reason, so only a failure to open what is to be synced passes there.
"""

from __future__ import annotations

import errno

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
PASSING = DISK_FULL | OUT_OF_DESCRIPTORS
