"""Names and sizes that a hostile client announces: they lead nowhere, and cost nothing."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.produce_requests import batch, create_topic, produce
from tests.e2e.raw_client import RawClient
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

NAMES = (
    "..", ".", "../outside", "a/../../outside", "/etc/passwd", "a/b", "a\\b", "a\0b", "a\nb", "",
    "~", "$HOME", "%s%n", "{0}", "a b", "\u202e", "x" * 250, "-rf", "con\x1b[2J",
)  # fmt: skip
# "-rf" is a name like any other.
TAKEN = {"-rf"}
ANNOUNCED = 1_000
FRAME_BYTES = 100 << 20


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_x30_no_name_of_a_topic_leads_out_of_the_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "inside" / "data"
    data.parent.mkdir()
    settings = {"auto.create.topics.enable": "true"}
    with BrokerProcess(data, settings) as broker, RawClient(broker.bootstrap_servers) as client:
        for name in NAMES:
            made = client.call(
                "CreateTopics", 5, CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)])
            ).topics[0]
            expected = 0 if name in TAKEN else ErrorCode.INVALID_TOPIC_EXCEPTION
            assert made.error_code == expected, name
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            client.call("Metadata", 9, asked)
            answer = client.call("Produce", 9, produce(name, batch([b"x"]), timeout_ms=100))
            assert (answer.responses[0].partition_responses[0].error_code == 0) == (name in TAKEN)
            client.call("DeleteTopics", 4, DeleteTopicsRequest(topic_names=[name]))
        assert broker.terminate() == 0
    outside = {path for path in tree(tmp_path) if not path.startswith("inside")}
    beside = {path for path in tree(tmp_path / "inside") if not path.startswith("data")}
    assert outside == set() and beside == set()
    assert not any("outside" in path or "passwd" in path for path in tree(data))


def test_x24_a_thousand_sockets_that_announce_large_frames_cost_no_memory(tmp_path: Path) -> None:
    settings = {"socket.listen.backlog.size": "1024"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t")
            before = broker.resident_bytes()
            with contextlib.ExitStack() as stack:
                for _ in range(ANNOUNCED):
                    stream = stack.enter_context(
                        socket.create_connection(("127.0.0.1", broker.port), timeout=30)
                    )
                    stream.sendall(FRAME_BYTES.to_bytes(4, "big") + os.urandom(64))
                answer = client.call("Produce", 9, produce("t", batch([b"x"])))
                assert answer.responses[0].partition_responses[0].error_code == 0
                grown = broker.resident_bytes() - before
        assert grown < ANNOUNCED * 48 * 1024, f"{grown >> 20} MiB"
