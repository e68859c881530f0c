"""Removing the files of deleted topics, and telling the controller once they are gone.

Files are removed only against a tombstone, or where metadata that knows this broker's present life
says that the replica is on other brokers (`may_delete_replica`). Those of a topic that is merely
absent from the metadata are put aside and kept for days (`storage/strays`).
The tombstone stays in the store until this broker has unlinked them, so a deletion that a kill cuts
short is finished by the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

from tidelog.audit import audit
from tidelog.errors import KafkaError
from tidelog.host.host import Host
from tidelog.model import TopicPartition
from tidelog.storage.data_dir import DataDir
from tidelog.storage.partition_directory import DELETED, STRAY

_log = logging.getLogger(__name__)

Confirm = Callable[[Sequence[UUID]], Awaitable[None]]


class Deletions:
    """The removals of one broker that are under way."""

    def __init__(self, data_dir: DataDir, host: Host, confirm: Confirm) -> None:
        self._data_dir = data_dir
        self._host = host
        self.confirm = confirm
        self._tasks: dict[asyncio.Task[None], None] = {}
        # Topics whose files were dealt with here, or are left to the next start.
        self.known: set[UUID] = set()

    async def let_go(
        self,
        gone: Mapping[TopicPartition, UUID],
        deleted: Mapping[TopicPartition, UUID],
        moved: Mapping[TopicPartition, UUID],
        delay_s: float,
    ) -> None:
        """Do with the directories of partitions that are not ours any more as becomes each."""
        if deleted:
            await self.retire(deleted, delay_s)
            _log.info("topics dropped partitions=%d", len(deleted))
        if moved:
            await self.retire_moved(moved, delay_s)
            _log.info("replicas moved away partitions=%d", len(moved))
        aside = {key: each for key, each in gone.items() if key not in deleted and key not in moved}
        if aside:
            # Lost by the metadata, as it seems: nobody asked for their files to go.
            await self.put_aside(aside)

    async def retire(self, partitions: Mapping[TopicPartition, UUID], delay_s: float) -> None:
        """Give the directories of deleted partitions other names; remove them after a delay."""
        self.known.update(partitions.values())
        retired, failed = await self._host.offload.run(self._retire, dict(partitions), DELETED)
        topic_ids = set(partitions.values()) - failed
        self.remove_later(sorted(topic_ids), retired, delay_s)

    async def retire_moved(self, partitions: Mapping[TopicPartition, UUID], delay_s: float) -> None:
        """As `retire`, for replicas that other brokers have now: no tombstone waits for that."""
        retired = await self._host.offload.run(self._retire_moved, dict(partitions))
        self.remove_later((), retired, delay_s)

    def _retire_moved(self, partitions: Mapping[TopicPartition, UUID]) -> list[str]:
        try:
            # Before the directories go: these replicas may come again, and after a crash the list
            # of what must be there would ask for what is gone.
            self._data_dir.inventory.rewrite({})
        except OSError as error:
            _log.error("inventory not written partitions=%d error=%s", len(partitions), error)
        return self._retire(partitions, DELETED)[0]

    async def put_aside(self, partitions: Mapping[TopicPartition, UUID]) -> None:
        """Give the directories of partitions that nobody deleted other names, and keep them."""
        aside, _ = await self._host.offload.run(self._retire, dict(partitions), STRAY)
        for path in aside:
            audit("partition put aside, its topic was not deleted", renamed_to=path)

    def _retire(
        self, partitions: Mapping[TopicPartition, UUID], kind: str
    ) -> tuple[list[str], set[UUID]]:
        """The new names, and the topics that keep a directory and so their tombstone."""
        retired, failed = [], set()
        for partition, topic_id in partitions.items():
            try:
                path = self._data_dir.retire_directory(partition, topic_id, kind)
            except OSError as error:
                # The next start removes it; a new topic of that name finds it in its way.
                _log.error("directory not renamed partition=%s error=%s", partition, error)
                failed.add(topic_id)
                continue
            if path is not None:
                retired.append(path)
        return retired, failed

    def remove_later(
        self, topic_ids: Sequence[UUID], directories: Sequence[str], delay_s: float
    ) -> None:
        """Unlink retired directories when readers have had their time, then confirm it."""
        self.known.update(topic_ids)
        task = asyncio.create_task(self._remove(topic_ids, directories, delay_s), name="deletion")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _remove(
        self, topic_ids: Sequence[UUID], directories: Sequence[str], delay_s: float
    ) -> None:
        await asyncio.sleep(delay_s)
        try:
            await self._host.offload.run(self._data_dir.remove_retired, directories)
            if topic_ids:
                await self.confirm(topic_ids)
        except OSError as error:
            _log.warning("deletion left for the next start topics=%d reason=%s",
                         len(topic_ids), error)  # fmt: skip
        except KafkaError as error:
            # The files are gone: with the next change of a topic the controller is told again.
            self.known.difference_update(topic_ids)
            _log.warning("deletion not confirmed topics=%d reason=%s", len(topic_ids), error)

    async def stop(self) -> None:
        """Leave what is not done to the next start."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
