"""A process with one or more members of the group: python -m tests.e2e.group_schedules.member TASK

SIGTERM makes them leave in good order.
"""

from __future__ import annotations

import sys
import threading
from typing import Protocol

from tests.e2e.group_schedules.task import MemberTask, Notes, Stop, open_history


class Member(Protocol):
    def run(self) -> None:
        """Until it is told to stop, or cannot go on."""


def make_member(task: MemberTask, notes: Notes, stop: Stop) -> Member:
    """Imports one client only: processes are many and cores are few."""
    if task.client == "aiokafka":
        from tests.e2e.group_schedules.aiokafka_member import AiokafkaMember

        return AiokafkaMember(task, notes, stop)
    if task.client == "kafka-python":
        from tests.e2e.group_schedules.kafka_python_member import KafkaPythonMember

        return KafkaPythonMember(task, notes, stop)
    from tests.e2e.group_schedules.confluent_member import ConfluentMember

    return ConfluentMember(task, notes, stop)


def main(argument: str) -> None:
    task = MemberTask.from_argument(argument)
    writer = open_history(task)
    stop = Stop()
    members = [
        make_member(task, Notes(writer, task, index), stop) for index in range(len(task.members))
    ]
    threads = [threading.Thread(target=member.run) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
