"""Answers of the broker, request by request, against Apache Kafka 4.3: the same ones.

A whole answer is compared, field by field, but for what depends on the moment (ids that are drawn,
ports, times) and for the words of an error. Where ours differs on purpose, `DIFFERENCES` says why.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.peers.kafka import run_tool
from tests.e2e.agreement import kafka_fixture, our_fixture
from tests.e2e.answers_script import ANSWERS_MIN, play
from tests.e2e.raw_client import RawClient
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

pytestmark = pytest.mark.java

SETTINGS = {
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
}
_NO_ID = "Kafka draws an id for a topic that it does not create; ours names none"
DIFFERENCES = {
    "CreateTopics 7: dry": _NO_ID,
    "CreateTopics 7: a name that collides": _NO_ID,
    "CreateTopics 7: offsets topic": "clients do not create internal topics: the broker does",
    "Metadata 13: no id, no name": "Kafka fails with UNKNOWN_SERVER_ERROR; to us the id is unknown",
}


kafka = kafka_fixture(SETTINGS)
ours = our_fixture(SETTINGS)


def test_every_answer_is_kafkas(kafka: str, ours: str) -> None:
    with RawClient(kafka) as client:
        expected = play(client)
    with RawClient(ours) as client:
        answers = play(client)
    assert len(answers) == len(expected) >= ANSWERS_MIN
    differing = {
        label: (answers[label], expected[label])
        for label in expected
        if answers[label] != expected[label]
    }
    assert differing.keys() >= DIFFERENCES.keys(), "these are the same by now"
    assert {label: pair for label, pair in differing.items() if label not in DIFFERENCES} == {}


def offered(servers: str) -> ApiVersionsResponse:
    with RawClient(servers) as client:
        answer: ApiVersionsResponse = client.call("ApiVersions", 4, ApiVersionsRequest("raw", "1"))
        return answer


def test_every_api_is_offered_in_the_versions_that_kafka_has(kafka: str, ours: str) -> None:
    expected = {
        each.api_key: (each.min_version, each.max_version) for each in offered(kafka).api_keys
    }
    for each in offered(ours).api_keys:
        assert (each.min_version, each.max_version) == expected[each.api_key], each.api_key


def test_the_features_are_some_of_kafkas_at_its_levels(kafka: str, ours: str) -> None:
    theirs, found = offered(kafka), offered(ours)
    finalized = {each.name: each.max_version_level for each in theirs.finalized_features}
    for feature in found.finalized_features:
        assert feature.max_version_level == finalized[feature.name]
    supported = {
        each.name: (each.min_version, each.max_version) for each in theirs.supported_features
    }
    for each in found.supported_features:
        lowest, highest = supported[each.name]
        assert lowest <= each.min_version <= each.max_version == highest
    # Levels above 0 would promise what is not there.
    names = {each.name for each in found.finalized_features}
    assert names == {"metadata.version", "group.version", "transaction.version"}


def test_kafkas_tool_describes_the_features(ours: str) -> None:
    done = run_tool("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", ours, "describe")
    assert done.returncode == 0, done.stderr
    told = {line.split()[1]: line.split() for line in done.stdout.splitlines()}
    assert "4.3-IV0" in told["metadata.version"]
    assert set(told) == {"metadata.version", "group.version", "transaction.version"}


def test_kafka_python_takes_the_broker_for_kafka_4_3(ours: str) -> None:
    program = (
        "import sys, kafka; client = kafka.KafkaAdminClient(bootstrap_servers=sys.argv[1]);"
        "print(client._manager.broker_version); client.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, ours], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "(4, 3)", done.stderr


def test_kafkas_tool_tells_how_large_the_logs_are(ours: str) -> None:
    done = run_tool(
        "org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", ours, "--describe"
    )
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout.splitlines()[-1])["brokers"]
    (directory,) = told["logDirs"]
    assert told["broker"] == 1 and directory["error"] is None
    assert "made-1" in {each["partition"] for each in directory["partitions"]}
