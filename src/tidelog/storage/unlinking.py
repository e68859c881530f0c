"""Getting rid of files that are no longer of use; a failure is left for the next start."""

from __future__ import annotations

import errno
import logging
import os.path

from tidelog.host.disk import Disk

logger = logging.getLogger(__name__)


def empty_quietly(disk: Disk, path: str) -> None:
    """Give back the space of a file that is no longer of use."""
    try:
        # Not before its new name is durable: under the old one it would be an emptied segment.
        disk.sync_dir(os.path.dirname(path))
        fd = disk.open(path)
        try:
            disk.truncate(fd, 0)
        finally:
            disk.close(fd)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("cannot empty file=%s error=%s", path, error)


def unlink_quietly(disk: Disk, path: str) -> None:
    """Unlink a file that is no longer of use; a failure is told and left for the next start."""
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENOENT:
            logger.warning("cannot unlink file=%s error=%s", path, error)
