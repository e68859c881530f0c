"""A driver process: one Kafka client behind a JSON line protocol (told in drivers/python/loop.py).

The cases speak to every client through this one class, whatever language it is written in.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.compat.wire import Record

START_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 40.0
READ_TIMEOUT_MS = 30_000


class ClientError(Exception):
    """What a client reported: the broker's error code, or the client's own kind of error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"code={error['code']} kind={error['kind']}: {error['message']}")
        self.code: int | None = error["code"]
        self.kind: str | None = error["kind"]


class DriverDied(Exception):
    """The driver ended or did not answer in time; its last words are in the message."""


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def record_to_json(record: Record) -> dict[str, Any]:
    return {
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "timestamp_ms": record.timestamp_ms,
        "partition": record.partition,
    }


def record_from_json(shown: Mapping[str, Any]) -> Record:
    return Record(
        key=_bytes(shown["key"]),
        value=_bytes(shown["value"]),
        headers=[(name, _bytes(value)) for name, value in shown["headers"]],
        timestamp_ms=shown["timestamp_ms"],
        partition=shown["partition"],
        offset=shown["offset"],
        topic=shown.get("topic", ""),
    )


class Delivery:
    """What became of one produced record."""

    def __init__(self, shown: Mapping[str, Any]) -> None:
        self.error = ClientError(shown["error"]) if shown.get("error") else None
        self.partition: int | None = shown.get("partition")
        self.offset: int | None = shown.get("offset")


def _state(shown: str | None) -> str | None:
    """A group's state as Kafka writes it, without the differences of the clients' enumerations."""
    return None if shown is None else shown.replace("_", "").lower()


class GroupDescription:
    """A group as a client describes it."""

    def __init__(self, shown: Mapping[str, Any]) -> None:
        self.state = _state(shown["state"])
        self.assignor: str | None = shown["assignor"]
        self.client_ids = [member["client_id"] for member in shown["members"]]
        self.instance_ids = [member["instance_id"] for member in shown["members"]]
        self.assignments = [
            {(topic, partition) for topic, partition in member["assignment"]}
            for member in shown["members"]
        ]


class Driver:
    """One running client; started on the first call, and again after it had to be killed."""

    def __init__(self, command: Sequence[str], bootstrap_servers: str, replicas: int = 1) -> None:
        """Topics are created with so many `replicas`."""
        self._command = [*command, bootstrap_servers]
        self._replicas = replicas
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self.version = ""

    def start(self) -> None:
        self._unread = b""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words
        )
        self.version = self._answer(START_TIMEOUT_S)["version"]

    def close(self) -> None:
        """End the driver and whatever it started: it ends by itself when its input does."""
        self._stop(grace_s=10.0)
        self._words.close()

    def kill(self) -> None:
        """SIGKILL: the client has no chance to say goodbye."""
        assert self._process is not None
        self._process.kill()
        self._stop(grace_s=10.0)

    def _stop(self, grace_s: float) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self._give_up(f"no answer within {timeout_s:.0f} s")
            piece = os.read(self._process.stdout.fileno(), 1 << 20)
            if not piece:
                self._give_up("the driver ended")
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _give_up(self, why: str) -> None:
        self._stop(grace_s=0.5)
        self._words.seek(0)
        words = self._words.read()[-4000:].decode(errors="replace")
        raise DriverDied(f"{why}: {' '.join(self._command)}\n{words}")

    def call(self, operation: str, **arguments: Any) -> Any:
        if self._process is None:
            self.start()
        assert self._process is not None and self._process.stdin is not None
        request = json.dumps({"operation": operation, "arguments": arguments})
        self._process.stdin.write(request.encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer(CALL_TIMEOUT_S)
        if answer.get("error"):
            raise ClientError(answer["error"])
        return answer.get("result")

    # ---- the operations, typed ----

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        factor = self._replicas if replicas is None else replicas
        arguments = {"partitions": partitions, "replication_factor": factor}
        self.call("create_topic", topic=topic, configs=dict(configs or {}), **arguments)

    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", topic=topic)

    def list_topics(self) -> list[str]:
        return list(self.call("list_topics"))

    def describe_topic(self, topic: str) -> list[dict[str, Any]]:
        described: list[dict[str, Any]] = self.call("describe_topic", topic=topic)
        return sorted(described, key=lambda partition: int(partition["partition"]))

    def describe_cluster(self) -> dict[str, Any]:
        return dict(self.call("describe_cluster"))

    def create_partitions(self, topic: str, total: int) -> None:
        self.call("create_partitions", topic=topic, total=total)

    def delete_records(self, topic: str, partition: int, offset: int) -> int | None:
        low_watermark: int | None = self.call(
            "delete_records", topic=topic, partition=partition, offset=offset
        )
        return low_watermark

    def describe_configs(self, kind: str, name: str) -> dict[str, dict[str, Any]]:
        return dict(self.call("describe_configs", kind=kind, name=name))

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self.call("alter_configs", topic=topic, configs=dict(configs))

    def incremental_alter_configs(
        self, topic: str, set_configs: Mapping[str, str], delete_configs: Sequence[str] = ()
    ) -> None:
        self.call(
            "incremental_alter_configs",
            topic=topic,
            set_configs=dict(set_configs),
            delete_configs=list(delete_configs),
        )

    def list_offset(self, topic: str, partition: int, at: str | int) -> int:
        return int(self.call("list_offsets", topic=topic, partition=partition, at=at)["offset"])

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        acks: int = -1,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[Delivery]:
        """What became of each record, refused ones included."""
        shown = self.call(
            "produce",
            topic=topic,
            records=[record_to_json(record) for record in records],
            acks=acks,
            codec=codec,
            idempotent=idempotent,
        )
        return [Delivery(entry) for entry in shown]

    def deliver(self, topic: str, records: Sequence[Record], **options: Any) -> list[Delivery]:
        """`produce` where nothing may be refused."""
        deliveries = self.produce(topic, records, **options)
        for delivery in deliveries:
            if delivery.error is not None:
                raise delivery.error
        assert len(deliveries) == len(records)
        return deliveries

    def list_groups(self) -> dict[str, str | None]:
        """The groups, each with its state where the client tells it."""
        return {shown["group"]: _state(shown["state"]) for shown in self.call("list_groups")}

    def describe_group(self, group: str) -> GroupDescription:
        return GroupDescription(self.call("describe_group", group=group))

    def list_group_offsets(self, groups: Sequence[str]) -> dict[str, dict[tuple[str, int], int]]:
        """What each group has committed, asked for in one call."""
        shown = self.call("list_group_offsets", groups=list(groups))
        return {
            group: {(topic, partition): offset for topic, partition, offset in offsets}
            for group, offsets in shown.items()
        }

    def alter_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        places = [[topic, partition, offset] for (topic, partition), offset in offsets.items()]
        self.call("alter_group_offsets", group=group, offsets=places)

    def delete_group(self, group: str) -> None:
        self.call("delete_group", group=group)

    def delete_group_offsets(self, group: str, topic: str, partition: int) -> None:
        self.call("delete_group_offsets", group=group, topic=topic, partition=partition)

    @contextlib.contextmanager
    def consumer(
        self,
        topic: str,
        start: Mapping[str, Any],
        partitions: Sequence[int] = (0,),
        reset: str = "none",
        isolation: str = "read_uncommitted",
        fetch_bytes: int = 1 << 20,
    ) -> Iterator[Consumer]:
        """An assigned consumer that stands at `start`, without a group."""
        try:
            self.call(
                "consumer_open",
                topic=topic,
                partitions=list(partitions),
                start=dict(start),
                reset=reset,
                isolation=isolation,
                fetch_bytes=fetch_bytes,
            )
            yield Consumer(self, topic)
        finally:
            if self._process is not None:
                self.call("consumer_close")


class Consumer:
    """The consumer that a driver holds open."""

    def __init__(self, driver: Driver, topic: str) -> None:
        self._driver = driver
        self._topic = topic

    def read(self, count: int, timeout_ms: int = READ_TIMEOUT_MS) -> list[Record]:
        """Up to `count` records: fewer only when the time is over."""
        shown = self._driver.call("consumer_read", count=count, timeout_ms=timeout_ms)
        return [record_from_json(record) for record in shown]

    def seek(self, partition: int, offset: int) -> None:
        self._driver.call("consumer_seek", topic=self._topic, partition=partition, offset=offset)
