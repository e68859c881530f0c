"""One partition's fault stays its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidelog.errors import PartitionBrokenError

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition


class Containment:
    """Takes a partition offline where an assertion fails in the block: no other one suffers.

    The error that comes out is answered by nobody, so it closes the request that led here.
    """

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, AssertionError):
            self.broke(error)

    def broke(self, error: AssertionError) -> NoReturn:
        """For who has caught it himself, which costs less where nothing fails."""
        self._partition.broke(error)
        raise PartitionBrokenError(f"{self._partition.topic_partition}: {error}") from error
