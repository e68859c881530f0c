"""What the tests of Kafka's files and tools share: surroundings of a log, the dump tool, topics."""

import re
from base64 import urlsafe_b64decode
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers.kafka import ApacheKafka, run_tool
from tidelog.host.clock import SystemClock
from tidelog.host.disk import SystemDisk
from tidelog.host.random import SystemRandom
from tidelog.storage.file_cache import FileCache
from tidelog.storage.log_context import LogContext

FIRST_TIMESTAMP = 1_700_000_000_000
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def log_context() -> LogContext:
    """The real machine for one log."""
    disk = SystemDisk()
    return LogContext(
        disk=disk,
        clock=SystemClock(),
        files=FileCache(disk, 100),
        random=SystemRandom(),
        run_later=lambda _seconds, function: function(),
        on_offline=lambda path, error: pytest.fail(f"{path}: {error}"),
    )


def dump(*arguments: str, files: list[Path]) -> str:
    """What DumpLogSegments prints of the files, once it has complained about nothing."""
    done = run_tool(DUMP, *arguments, "--files", ",".join(str(file) for file in files))
    assert done.returncode == 0, done.stdout + done.stderr
    assert complaints(done.stderr) == ""
    return done.stdout


def complaints(stderr: str) -> str:
    """Kafka 4.3 finds a gap before every segment that does not begin at 0, its own ones too (see
    the test of that); what else it says is left."""
    ours = r"Non-consecutive offsets in \S*/(0*(\d+)).log\n  -1 is followed by \2\n"
    return re.sub(ours, "", stderr)


def segment_files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*.{suffix}"))


def topic_id(directory: Path) -> UUID:
    match = re.search(r"topic_id: (\S+)", (directory / "partition.metadata").read_text())
    assert match is not None
    return UUID(bytes=urlsafe_b64decode(match[1] + "=="))


def create_topic(kafka: ApacheKafka, name: str, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
