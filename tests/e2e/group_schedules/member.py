"""A process with one or more members of the group: python -m tests.e2e.group_schedules.member TASK

SIGTERM makes them leave in good order.
"""

from __future__ import annotations

import sys
import threading

from tests.e2e.group_schedules.confluent_member import ConfluentMember
from tests.e2e.group_schedules.task import MemberTask, Notes, Stop, open_history


def main(argument: str) -> None:
    task = MemberTask.from_argument(argument)
    writer = open_history(task)
    stop = Stop()
    members = [
        ConfluentMember(task, Notes(writer, task, index), stop)
        for index in range(len(task.members))
    ]
    threads = [threading.Thread(target=member.run) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
