"""How the descriptors of the process are shared out, so that connections never starve the log.

Half of them are the log's, unless `open.files.max` says otherwise; a part is kept for everything
that is neither a connection nor a segment; the status pages have a few of their own, so that a
flood of clients does not hide them; what is left is for clients.
"""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass

_log = logging.getLogger(__name__)

# Some systems allow a thousand million, or any number: nobody needs more than this.
_DESCRIPTORS_MAX = 1 << 20
_RESERVED = 128
_PAGES_MAX = 64
_FEWEST_CLIENTS = 16
_FEWEST_PAGES = 4


def descriptor_limit() -> int:
    """How many descriptors this process may have open."""
    return _bounded(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one: the soft one is for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _bounded(hard)
    if _bounded(soft) >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError) as error:
        _log.warning("open file limit not raised from=%d to=%d error=%s", soft, wanted, error)
    else:
        _log.info("open file limit raised from=%d to=%d", soft, wanted)


def _bounded(limit: int) -> int:
    return _DESCRIPTORS_MAX if limit == resource.RLIM_INFINITY else min(limit, _DESCRIPTORS_MAX)


@dataclass(slots=True)
class DescriptorShares:
    """How many descriptors each may use."""

    open_files: int
    clients: int
    pages: int


def share_out(limit: int, open_files_max: int) -> DescriptorShares:
    """Divide `limit` descriptors; `open_files_max` is as configured, -1 for half of them."""
    open_files = open_files_max if open_files_max >= 0 else limit // 2
    pages = max(_FEWEST_PAGES, min(_PAGES_MAX, limit // 16))
    clients = max(_FEWEST_CLIENTS, limit - open_files - _RESERVED - pages)
    return DescriptorShares(open_files, clients, pages)
