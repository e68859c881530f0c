"""Driver for kcat, through its command line: a process for each thing that is asked.

kcat takes headers, the partition and nullness for a whole process, so a list of records is sent
in runs of records that agree in these; its deliveries are read from what it says with ``-vv``.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator

from tests.compat.drivers.python import loop
from tests.compat.drivers.python.kcat_consumer import KcatConsumer, consumed, to_error
from tests.compat.drivers.python.kcat_groups import GroupOperations
from tests.compat.drivers.python.loop import DriverError, JsonObject, bytes_of

TIMEOUT_S = 10.0
KEY_DELIMITER, RECORD_DELIMITER = "\x1f", "\x1e"


class Client(GroupOperations):
    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.consumer: KcatConsumer | None = None
        self.members = {}

    def _command(self, mode: str, *arguments: str, **properties: object) -> list[str]:
        settings = [f"-X{name}={value}" for name, value in properties.items()]
        return ["kcat", mode, "-b", self.bootstrap_servers, *settings, *arguments]

    def _run(self, mode: str, *arguments: str) -> str:
        command = self._command(mode, *arguments)
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            raise to_error(done.stderr.decode())
        return done.stdout.decode()

    # ---- what it shows of the cluster ----

    def _metadata(self, *arguments: str) -> JsonObject:
        shown: JsonObject = json.loads(self._run("-L", "-J", *arguments))
        return shown

    def list_topics(self) -> list[str]:
        return [topic["topic"] for topic in self._metadata()["topics"]]

    def describe_topic(self, topic: str) -> list[JsonObject]:
        (described,) = self._metadata("-t", topic)["topics"]
        if "error" in described:
            raise to_error(described["error"])
        return [
            {
                "partition": partition["partition"],
                "leader": partition["leader"],
                "replicas": [replica["id"] for replica in partition["replicas"]],
                "isr": [replica["id"] for replica in partition["isrs"]],
            }
            for partition in described["partitions"]
        ]

    def describe_cluster(self) -> JsonObject:
        shown = self._metadata()
        brokers = []
        for broker in shown["brokers"]:
            host, _, port = broker["name"].rpartition(":")
            brokers.append([broker["id"], host, int(port)])
        return {"cluster_id": None, "controller_id": shown["controllerid"], "brokers": brokers}

    def list_offsets(self, topic: str, partition: int, at: str | int) -> JsonObject:
        time_asked = {"earliest": -2, "latest": -1}[at] if isinstance(at, str) else at
        shown = self._run("-Q", "-t", f"{topic}:{partition}:{time_asked}")
        found = re.search(r"\[\d+\] offset (-?\d+)", shown)
        if found is None:
            raise to_error(shown)
        return {"offset": int(found[1])}

    # ---- produce ----

    def produce(
        self, topic: str, records: list[JsonObject], acks: int, codec: str, idempotent: bool
    ) -> list[JsonObject]:
        command = self._command(
            "-P",
            *("-v", "-v", "-t", topic, "-z", codec, "-D", RECORD_DELIMITER),
            **{
                "acks": acks,
                "enable.idempotence": str(idempotent).lower(),
                "linger.ms": 20,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
                "topic.metadata.propagation.max.ms": 500,
            },
        )
        results: list[JsonObject] = []
        for run in _runs_that_agree(records):
            results += self._produce_run(command, run)
        return results

    def _produce_run(self, command: list[str], run: list[JsonObject]) -> list[JsonObject]:
        arguments, lines = _as_arguments(run)
        done = subprocess.run(
            [*command, *arguments],
            input=b"".join(line + RECORD_DELIMITER.encode() for line in lines),
            capture_output=True,
            timeout=2 * TIMEOUT_S,
            check=False,
        )
        said = done.stderr.decode(errors="replace")
        delivered = re.findall(r"delivered to partition (\d+) \(offset (-?\d+)\)", said)
        results: list[JsonObject] = [
            {"partition": int(where), "offset": max(int(offset), -1)} for where, offset in delivered
        ]
        failed = re.findall(r"Delivery failed for message: (.*)|Failed to produce .*: (.*)", said)
        results += [{"error": to_error("".join(words)).to_json()} for words in failed]
        if len(results) != len(run):
            raise to_error(f"{len(results)} of {len(run)} records were answered: {said}")
        return results

    # ---- consume ----

    def consumer_open(
        self,
        topic: str,
        partitions: list[int],
        start: JsonObject,
        reset: str,
        isolation: str,
        fetch_bytes: int,
    ) -> None:
        offset = {
            "earliest": "beginning",
            "latest": "end",
            "offset": str(start.get("offset")),
            "timestamp": f"s@{start.get('timestamp_ms')}",
        }[start["at"]]
        where = ["-p", str(partitions[0])] if len(partitions) == 1 else []
        settings = {
            "auto.offset.reset": {"none": "error"}.get(reset, reset),
            "isolation.level": isolation,
            "max.partition.fetch.bytes": fetch_bytes,
        }
        command = self._command("-C", "-J", "-u", "-t", topic, "-o", offset, *where, **settings)
        self.consumer = KcatConsumer(command)
        if start["at"] == "latest":
            ends = 0
            for line in self.consumer.lines(TIMEOUT_S):
                ends += "Reached end of topic" in line
                if ends == len(partitions):
                    return
            raise DriverError("the end was not reached", kind="timeout")

    def consumer_read(self, count: int, timeout_ms: int) -> list[JsonObject]:
        assert self.consumer is not None
        found: list[JsonObject] = []
        for line in self.consumer.lines(timeout_ms / 1000) if count else ():
            if line.startswith("{"):
                found.append(consumed(line))
                if len(found) == count:
                    break
            elif "ERROR" in line:
                raise to_error(line)
        return found

    def consumer_close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()
            self.consumer = None


def _shape(record: JsonObject) -> tuple[object, ...]:
    return (
        record["partition"],
        record["headers"],
        record["key"] is None,
        record["value"] is None,
    )


def _runs_that_agree(records: list[JsonObject]) -> Iterator[list[JsonObject]]:
    """Runs for one process each; a key that chooses its partition goes alone.

    Deliveries to several partitions come in any order, so they could not be told apart.
    """
    for shape, run in itertools.groupby(records, _shape):
        if shape[0] is None:
            yield from ([record] for record in run)
        else:
            yield list(run)


def _as_arguments(run: list[JsonObject]) -> tuple[list[str], list[bytes]]:
    """The options that hold for all records of a run, and its lines for standard input."""
    first = run[0]
    arguments = []
    if first["partition"] is not None:
        arguments += ["-p", str(first["partition"])]
    for name, value in loop.headers_of(first):
        arguments += ["-H", name if value is None else f"{name}={value.decode()}"]
    if first["value"] is None:
        arguments.append("-Z")
    if first["key"] is None:
        return arguments, [bytes_of(record["value"]) or b"" for record in run]
    delimiter = KEY_DELIMITER.encode()
    lines = [
        (bytes_of(record["key"]) or b"") + delimiter + (bytes_of(record["value"]) or b"")
        for record in run
    ]
    return [*arguments, "-K", KEY_DELIMITER], lines


if __name__ == "__main__":
    version = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    numbers = re.search(r"Version (\S+) .*librdkafka (\S+)", version)
    loop.announce("kcat", f"{numbers[1]} (librdkafka {numbers[2]})" if numbers else "unknown")
    client = Client(sys.argv[1])
    loop.serve(client, to_error)
    for member in list(client.members):
        client.member_close(member)
