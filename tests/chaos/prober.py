"""Asks each broker again and again where partitions end.

    python -m tests.chaos.prober HISTORY PARTITIONS SERVER...

Only one that takes itself for the leader answers; so a history shows for how long one that was
replaced goes on telling what it knows.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from tests.e2e.group_schedules.task import TOPIC, Stop, partition_name
from tests.e2e.raw_client import RawClient
from tests.history.events import EndRead, HistoryWriter
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

_LATEST = -1
_REST_S = 0.25
_PATIENCE_S = 5.0


def main(history: str, partitions: str, *servers: str) -> None:
    writer = HistoryWriter(Path(history))
    stop = Stop()
    threads = [
        threading.Thread(target=_ask, args=(server, int(partitions), writer, stop))
        for server in servers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()


def _ask(server: str, partitions: int, writer: HistoryWriter, stop: Stop) -> None:
    asked = [ListOffsetsPartition(partition_index=each, timestamp=_LATEST)
             for each in range(partitions)]  # fmt: skip
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)]
    )
    while not stop.is_set():
        try:
            with RawClient(server) as client:
                client.socket.settimeout(_PATIENCE_S)
                while not stop.is_set():
                    started_ns = time.monotonic_ns()
                    answers = client.call("ListOffsets", 7, request).topics[0].partitions
                    for each in answers:
                        if each.error_code == 0:
                            name = partition_name(each.partition_index)
                            event = EndRead(
                                time.monotonic_ns(), started_ns, server, name, each.offset
                            )
                            writer.write(event)
                    stop.wait(_REST_S)
        except OSError:  # it is away, or does not hear us
            stop.wait(_REST_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
