"""Whether a data directory still holds all that the broker had in its last life.

A kill loses nothing that the kernel has. A power cut may, and so may a file system that is taken
away or a sync that failed. A broker that may have lost records must neither lead nor count as in
sync (KIP-966), so it registers with its *intact epoch*: the broker epoch of the last life from
which the directory is whole, or -1. That is known

- from the marker of a clean stop, which carries the broker epoch;
- else from the file `broker-life`, if the page cache is the same as then and no sync failed.

`vouch` gives the fields of `BrokerRegistration`. Where `clean_epoch` is not the epoch of the last
life that the controller has seen (`cluster/lives`), the broker leaves ISRs and ELRs before anything
is elected. The ids of the page cache are given only where the epochs match, so that an old copy of
the directory on the same machine does not pass for it. Once registered, and before it serves, the
broker calls `registered`.

A broker that is killed between the two is known in an epoch that its directory is not. So each life
has an *incarnation*, an id that is in the directory before it is in the metadata: where the last
life there is one of those that this directory had begun since its epoch, it is whole from that one.

`broker-life` is one line: CRC-32C (8 hex digits) of the rest, `tidelog-life 1`, broker epoch, boot
id, mount id (`-` where unknown), incarnations since that epoch (with commas between; an older file
has none). Missing or damaged it says nothing. `sync-failed` is empty, and there from the first
fault of the disk until the next start has noted it. Calls that touch the disk block.
"""

from __future__ import annotations

import json
import logging
from typing import NamedTuple

from tidelog.audit import audit
from tidelog.host.disk import Disk
from tidelog.host.page_cache import PageCache
from tidelog.protocol.checksum import crc32c
from tidelog.storage.checkpoint import read_bytes, write_durably, write_plainly
from tidelog.storage.faults import PASSING
from tidelog.storage.unlinking import unlink_quietly

logger = logging.getLogger(__name__)

LIFE = "broker-life"
SYNC_FAILED = "sync-failed"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NO_EPOCH = -1
_HEAD = "tidelog-life 1"
# Lives that did not get to write down their epoch; of more than that the last count.
_INCARNATIONS_MAX = 16


class Vouched(NamedTuple):
    """What a registration says of the directory; the names are those of its fields."""

    directory_id: str
    boot_id: str
    mount_id: str
    clean_epoch: int
    incarnation: str


class Known(NamedTuple):
    """The last life of the broker in the metadata."""

    epoch: int
    incarnation: str


class _Before(NamedTuple):
    """What the file says of the lives before."""

    epoch: int
    cache: PageCache
    incarnations: tuple[str, ...]


class DirectoryLife:
    """The lives of the broker that a directory knows of: the last one and this one."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._cache = PageCache()
        # The life before that the directory is whole from.
        self.intact_epoch = NO_EPOCH
        # Why it is not, as a clause; empty where it is, or where there was none.
        self.loss = ""
        self.was_clean = False
        # This life, once it is registered.
        self.epoch = NO_EPOCH
        # Those that began since the epoch in the file, this one last.
        self._incarnations: tuple[str, ...] = ()

    @property
    def lossy(self) -> bool:
        """True where records of the last life may be missing."""
        return bool(self.loss)

    def begin(self, incarnation: str, *, is_new: bool) -> None:
        """Judge what the last life left; OSError where that cannot be written down.

        The marker of a clean stop is taken away: it proves nothing of what comes now.
        """
        disk, marker = self._disk, f"{self._path}/{CLEAN_SHUTDOWN}"
        self._cache = disk.page_cache(self._path)
        self.was_clean = disk.exists(marker)
        failed = disk.exists(f"{self._path}/{SYNC_FAILED}")
        before = self._read()
        earlier = () if before is None else before.incarnations
        self._incarnations = (*earlier, incarnation)[-_INCARNATIONS_MAX:]
        if self.was_clean and not failed:
            self.intact_epoch = self._marker_epoch(marker)
        elif not is_new:
            self.loss = self._loss_after_kill(before, failed)
            self.intact_epoch = NO_EPOCH if before is None or self.loss else before.epoch
        if self.loss:
            # The directory is whole from none of them, whatever the lives to come find.
            self._incarnations = (incarnation,)
        # A clean stop is as good as an unbroken page cache from here on, a loss stays one.
        self._write_if_it_fits(self.intact_epoch)
        for name in (SYNC_FAILED, CLEAN_SHUTDOWN):
            if disk.exists(f"{self._path}/{name}"):
                disk.unlink(f"{self._path}/{name}")
        disk.sync_dir(self._path)

    def _loss_after_kill(self, before: _Before | None, failed: bool) -> str:
        if failed:
            return "a sync of the disk had failed"
        if before is None:
            return f"{LIFE} is missing or damaged, so the last stop counts as a loss of power"
        if not self._cache.is_known:
            return "this system cannot tell a killed broker from a loss of power"
        if before.cache.boot_id != self._cache.boot_id:
            return "the machine was started again since the broker ran, without a clean stop"
        if before.cache != self._cache:
            return "the file system was mounted again since the broker ran, without a clean stop"
        return ""

    def lost(self, reason: str) -> None:
        """Records of the last life turned out to be missing."""
        if not self.loss:
            self.loss = reason
        self.intact_epoch = NO_EPOCH
        self._incarnations = self._incarnations[-1:]
        self._write_if_it_fits(NO_EPOCH)

    def sync_failed(self) -> None:
        """What was not synced by now may be gone though the page cache stays."""
        try:
            # Not synced: a loss of power that takes the mark away is a loss without it, too.
            write_plainly(self._disk, f"{self._path}/{SYNC_FAILED}", b"")
        except OSError as error:
            logger.error("cannot mark that a sync failed path=%s error=%s", self._path, error)

    def vouch(self, directory_id: str, known: Known | None) -> Vouched:
        """What to say at a registration."""
        cache = self._cache
        if known is not None and not self.loss and known.incarnation in self._incarnations[:-1]:
            # It did not get as far as to serve, or at least not to write down its epoch.
            self.intact_epoch = known.epoch
        if known is not None and known.epoch != self.intact_epoch:
            cache = PageCache()
            audit(
                "records of the last life may be missing",
                directory=self._path,
                reason=repr(self.loss or "the directory is older than the last life of the broker"),
            )
        return Vouched(
            directory_id, cache.boot_id, cache.mount_id, self.intact_epoch, self._incarnations[-1]
        )

    def registered(self, epoch: int) -> None:
        """A life of this epoch begins; where that cannot be written down, its end is a loss."""
        self.epoch = epoch
        self._incarnations = self._incarnations[-1:]
        try:
            self._write_if_it_fits(epoch)
        except OSError as error:
            logger.error("broker epoch not written path=%s error=%s", self._path, error)

    def write_clean_marker(self) -> None:
        """All is synced: the last thing that a stop writes."""
        epoch = self.intact_epoch if self.epoch == NO_EPOCH else self.epoch
        marker = json.dumps({"version": 0, "brokerEpoch": epoch}, separators=(",", ":"))
        write_durably(self._disk, f"{self._path}/{CLEAN_SHUTDOWN}", marker.encode())

    def _marker_epoch(self, path: str) -> int:
        try:
            epoch = json.loads(read_bytes(self._disk, path) or b"")["brokerEpoch"]
        except (ValueError, KeyError, TypeError):
            epoch = None
        if isinstance(epoch, int):
            return epoch
        # Older than the marker's content, or damaged: all is synced, of an epoch not known.
        return NO_EPOCH

    def _write_if_it_fits(self, epoch: int) -> None:
        try:
            self._write(epoch)
        except OSError as error:
            if error.errno not in PASSING:
                raise
            # What stands there would vouch for another epoch than this.
            logger.warning("broker epoch not written path=%s error=%s", self._path, error)
            unlink_quietly(self._disk, f"{self._path}/{LIFE}")

    def _write(self, epoch: int) -> None:
        boot_id, mount_id = self._cache
        incarnations = ",".join(self._incarnations)
        line = f"{_HEAD} {epoch} {boot_id or '-'} {mount_id or '-'} {incarnations}".encode()
        write_durably(self._disk, f"{self._path}/{LIFE}", _checked(line))

    def _read(self) -> _Before | None:
        data = read_bytes(self._disk, f"{self._path}/{LIFE}")
        if data is None or data != _checked(data[9:-1]):
            return None
        head, _, rest = data[9:-1].decode().partition(f"{_HEAD} ")
        fields = rest.split(" ")
        if head or len(fields) not in (3, 4):
            return None
        epoch, boot_id, mount_id, *incarnations = fields
        cache = PageCache(boot_id.strip("-"), mount_id.strip("-"))
        return _Before(int(epoch), cache, tuple(filter(None, ",".join(incarnations).split(","))))


def _checked(line: bytes) -> bytes:
    return b"%08x %b\n" % (crc32c(line), line)
