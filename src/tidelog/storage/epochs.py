"""Which leader epoch began at which offset, for truncation (KIP-101, KIP-279) and for clients.

Entries rise in both epoch and offset. The file `leader-epoch-checkpoint` is brought up to date by
the flush that moves the recovery point past the entries, so recovery finds what is missing in the
headers of the batches that it scans; a damaged file is rebuilt from the headers of the whole log.
"""

from __future__ import annotations

from bisect import bisect_right

from tidelog.errors import StorageError
from tidelog.host.disk import Disk
from tidelog.storage.checkpoint import decode_lines, encode_lines, read_bytes

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED = (-1, -1)


class LeaderEpochs:
    """The leader epochs of one log and the offsets that they began at."""

    __slots__ = ("_epochs", "_starts", "changes")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        # Counts changes, so that a writer can tell whether the file still lags.
        self.changes = 0

    @property
    def latest(self) -> int:
        """The newest epoch, -1 where there is none."""
        return self._epochs[-1] if self._epochs else -1

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that an epoch begins at an offset, unless it is known to have begun before."""
        assert epoch >= self.latest, f"leader epoch {epoch} follows {self.latest}"
        assert start_offset >= 0, f"leader epoch {epoch} begins at {start_offset}"
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            return
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        self.changes += 1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and where it ends; (-1, -1) where unknown."""
        epochs = self._epochs
        if epoch < 0 or not epochs or epoch > epochs[-1]:
            return UNDEFINED
        if epoch == epochs[-1]:
            return epoch, log_end_offset
        place = bisect_right(epochs, epoch)
        if not place:
            return epoch, self._starts[0]
        return epochs[place - 1], self._starts[place]

    def epoch_for(self, offset: int) -> int:
        """The epoch that an offset was written in, -1 where unknown."""
        place = bisect_right(self._starts, offset)
        return self._epochs[place - 1] if place else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that began at or above `end_offset`."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            self.changes += 1

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended before `start_offset`; the one that holds it begins there."""
        place = bisect_right(self._starts, start_offset) - 1
        if place < 0 or (self._starts[place] == start_offset and not place):
            return
        del self._epochs[:place]
        del self._starts[:place]
        self._starts[0] = start_offset
        self.changes += 1

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()
        self.changes += 1

    def encode(self) -> bytes:
        return encode_lines(f"{epoch} {start}" for epoch, start in self.entries)

    def load(self, disk: Disk, directory: str) -> bool:
        """Read the file; False where it is missing or damaged and the log must be asked."""
        path = f"{directory}/{FILE_NAME}"
        self.clear()
        data = read_bytes(disk, path)
        if data is None:
            return False
        try:
            entries = [(int(epoch), int(start)) for epoch, start in decode_lines(data, path)]
        except (StorageError, ValueError):
            return False
        for epoch, start in entries:
            if epoch <= self.latest or start < 0 or (self._starts and start < self._starts[-1]):
                self.clear()
                return False
            self.assign(epoch, start)
        return True
