"""Settings described, altered and listed, request by request, against Apache Kafka 4.3.

What is left out, because it differs on purpose: client metrics, which are not offered; the words
of DescribeConfigs for a resource type that nobody knows; how far Kafka lets a number of threads
grow; `min.insync.replicas`, which Kafka sets for the whole cluster at its start; settings whose
default is another one here, such as the format of a keystore; a resource named twice in
AlterConfigs, which Kafka never answers; a value of more than 32,767 bytes in a request, for which
Kafka closes the connection; an empty name, one of more than 255 characters and more than 1,000
settings of one broker, which Kafka takes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bench.peers.kafka import ApacheKafka
from tests.e2e.produce_requests import create_topic
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.config.setting import Update
from tidelog.config.table import BROKER_SETTINGS, TOPIC_SETTINGS
from tidelog.errors import ErrorCode
from tidelog.model import ConfigOperation, ConfigResourceType
from tidelog.protocol.messages import alter_configs as full
from tidelog.protocol.messages import incremental_alter_configs as incremental
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from tidelog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tidelog.testing import Broker

pytestmark = pytest.mark.java

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = ConfigResourceType
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
NODE = "1"
# Altered to see when Kafka has come so far.
SETTLING = "log.segment.delete.delay.ms"
SETTINGS = {
    "node.id": NODE,
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "5000",
}
TOPIC_KEYS = [
    name
    for name, row in TOPIC_SETTINGS.items()
    if row.kafka and not row.internal
    if name not in ("min.insync.replicas", "file.delete.delay.ms")
]
# Those that may be altered while a broker runs, and a few that may not.
BROKER_KEYS = [
    name
    for name, row in BROKER_SETTINGS.items()
    if row.kafka and not row.internal and row.update is not Update.READ_ONLY
    if name not in ("min.insync.replicas", SETTLING) and row.kafka_default is None
]
BROKER_KEYS += [
    "group.consumer.assignors",
    "group.consumer.session.timeout.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "num.partitions",
]
GROUP_KEYS = ["consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"]
ANSWERS_MIN = 170

Setting = tuple[str, str | None]


class Script:
    """One broker, asked step by step; `answers` is what it said."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.answers: list[object] = []
        self._settled = 0
        self._is_settled = True

    def describe(self, kind: int, name: str, keys: list[str] | None) -> None:
        self.settle()
        resource = DescribeConfigsResource(kind, name, keys)
        request = DescribeConfigsRequest([resource], True, True)
        (found,) = self.client.call("DescribeConfigs", 4, request).results
        what = f"describe {kind} {name} {keys if keys is None or len(keys) < 5 else len(keys)}"
        answer = (ErrorCode(found.error_code).name, found.error_message)
        self.answers.append((what, *answer, found.resource_type, found.resource_name))
        for setting in sorted(found.configs, key=lambda each: each.name):
            self.answers.append((what, *_shown(setting)))

    def alter(self, kind: int, name: str, *settings: Setting, dry: bool = False) -> None:
        configs = [full.AlterableConfig(*each) for each in settings]
        resource = full.AlterConfigsResource(kind, name, configs)
        request = full.AlterConfigsRequest([resource], dry)
        responses = self.client.call("AlterConfigs", 2, request).responses
        self._told(f"alter {kind} {name!r} {settings} {dry}", responses)

    def increment(
        self, kind: int, name: str, *changes: tuple[str, int, str | None], dry: bool = False
    ) -> None:
        configs = [incremental.AlterableConfig(*each) for each in changes]
        resource = incremental.AlterConfigsResource(kind, name, configs)
        request = incremental.IncrementalAlterConfigsRequest([resource], dry)
        responses = self.client.call("IncrementalAlterConfigs", 1, request).responses
        self._told(f"increment {kind} {name!r} {changes} {dry}", responses)

    def both(self, kind: int, name: str, *settings: Setting) -> None:
        """Ask both APIs, once to validate only and once to do it."""
        for dry in (True, False):
            self.alter(kind, name, *settings, dry=dry)
            changes = [(key, int(SET), value) for key, value in settings]
            self.increment(kind, name, *changes, dry=dry)

    def list(self, version: int, *types: int) -> None:
        self.settle()
        request = ListConfigResourcesRequest(list(types))
        found = self.client.call("ListConfigResources", version, request)
        listed = sorted((each.resource_type, each.resource_name) for each in found.config_resources)
        self.answers.append((f"list {version} {types}", found.error_code, listed))

    def await_topic(self, name: str) -> None:
        """Kafka answers before a topic is there."""
        request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, [])])

        def is_there() -> bool:
            (found,) = self.client.call("DescribeConfigs", 4, request).results
            return bool(found.error_code == 0)

        eventually(is_there)

    def settle(self) -> None:
        """Wait until what was altered is in force: Kafka answers before it is."""
        if self._is_settled:
            return
        self._is_settled = True
        self._settled += 1
        value = str(60_000 + self._settled)
        changed = incremental.AlterableConfig(SETTLING, int(SET), value)
        resource = incremental.AlterConfigsResource(BROKER, "", [changed])
        request = incremental.IncrementalAlterConfigsRequest([resource], False)
        self.client.call("IncrementalAlterConfigs", 1, request)
        look = DescribeConfigsRequest([DescribeConfigsResource(BROKER, NODE, [SETTLING])])
        eventually(
            lambda: (
                self.client.call("DescribeConfigs", 4, look).results[0].configs[0].value == value
            )
        )

    def _told(self, what: str, responses: Sequence[Any]) -> None:
        self._is_settled = False
        for each in responses:
            code = ErrorCode(each.error_code).name
            answer = (code, each.error_message, each.resource_type, each.resource_name)
            self.answers.append((what, *answer))


def _shown(setting: DescribeConfigsResourceResult) -> tuple[object, ...]:
    synonyms = [(each.name, each.value, each.source) for each in setting.synonyms]
    facts = (setting.config_source, setting.read_only, setting.is_sensitive, setting.config_type)
    return setting.name, setting.value, *facts, synonyms


def play(script: Script) -> None:
    create_topic(script.client, "t", 1, retention_ms="1000")
    script.await_topic("t")
    describe_as_it_is(script)
    alter_topics(script)
    alter_brokers(script)
    alter_groups(script)
    alter_loggers(script)
    list_resources(script)


def describe_as_it_is(script: Script) -> None:
    script.describe(TOPIC, "t", TOPIC_KEYS)
    script.describe(TOPIC, "t", ["no.such.setting"])
    script.describe(TOPIC, "missing", None)
    script.describe(TOPIC, "", None)
    script.describe(TOPIC, "bad name!", None)
    script.describe(BROKER, NODE, BROKER_KEYS)
    script.describe(BROKER, f"0{NODE}", ["num.partitions"])
    for name in ("77", "-1", "abc", f" {NODE}", f"+{NODE}", f"+-{NODE}", "9" * 5_000):
        script.describe(BROKER, name, ["num.partitions"])
    script.describe(LOGGER, NODE, ["root"])
    for name in ("", "77", "abc", f"+-{NODE}"):
        script.describe(LOGGER, name, ["root"])
    script.describe(GROUP, "g", GROUP_KEYS)
    script.describe(GROUP, "g", ["no.such.setting"])
    script.describe(GROUP, "", GROUP_KEYS)


def alter_topics(script: Script) -> None:
    for name in ("missing", "", "bad name!"):
        script.both(TOPIC, name, ("retention.ms", "1"))
    for setting in (
        ("no.such.setting", "1"),
        ("retention.ms", None),
        ("retention.ms", "x"),
        ("retention.ms", ""),
        ("retention.ms", "1_0"),
        ("retention.ms", "-5"),
        ("retention.ms", "99999999999999999999"),
        ("segment.bytes", "1"),
        ("cleanup.policy", "x"),
        ("cleanup.policy", "delete,,compact"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("unclean.leader.election.enable", "maybe"),
        ("min.cleanable.dirty.ratio", "2"),
        ("min.cleanable.dirty.ratio", "x"),
        ("message.timestamp.type", "x"),
        ("remote.storage.enable", "true"),
    ):
        script.both(TOPIC, "t", setting)
    script.both(TOPIC, "t", ("retention.ms", "1"), ("retention.ms", "2"))
    script.both(TOPIC, "t", ("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "4"))
    script.both(TOPIC, "t", ("retention.ms", " 2000 "), ("cleanup.policy", "delete,delete"))
    script.both(TOPIC, "t", ("segment.ms", "5"))
    script.increment(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    script.increment(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    script.increment(TOPIC, "t", ("cleanup.policy", SUBTRACT, "absent"))
    script.increment(TOPIC, "t", ("cleanup.policy", APPEND, None))
    script.increment(TOPIC, "t", ("retention.ms", APPEND, "5"))
    script.increment(TOPIC, "t", ("no.such.setting", APPEND, "5"))
    script.increment(TOPIC, "t", ("no.such.setting", DELETE, None))
    throttled, replicas = "leader.replication.throttled.replicas", "0:" + "0" * 32_765
    script.both(TOPIC, "t", (throttled, replicas))
    script.increment(TOPIC, "t", (throttled, APPEND, "1:0"))
    script.increment(TOPIC, "t", (throttled, DELETE, None))
    script.increment(TOPIC, "t", ("segment.ms", DELETE, "ignored"))
    script.increment(TOPIC, "t", ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))
    script.describe(TOPIC, "t", TOPIC_KEYS)


def alter_brokers(script: Script) -> None:
    for name in ("77", "-1", "abc", "--1"):
        script.both(BROKER, name, ("log.cleaner.threads", "2"))
    for setting in (
        ("node.id", "5"),
        ("log.retention.hours", "7"),
        ("queued.max.requests", "7"),
        ("ssl.keystore.location", "/x"),
        ("log.retention.bytes", "x"),
        ("log.retention.ms", None),
        ("log.segment.bytes", "5"),
        ("log.cleanup.policy", "x"),
        ("background.threads", "x"),
        ("leader.replication.throttled.rate", "x"),
    ):
        script.both(BROKER, NODE, setting)
        script.increment(BROKER, "", (setting[0], SET, setting[1]))
    for setting in (
        ("log.cleaner.threads", "2"),
        ("num.network.threads", "4"),
        ("leader.replication.throttled.rate", "1000"),
        ("sasl.kerberos.principal.to.local.rules", "DEFAULT"),
        ("sasl.kerberos.min.time.before.relogin", "60000"),
        ("listener.name.plaintext.ssl.keystore.location", "/x"),
        ("no.such.setting", "secret"),
        ("log.cleaner.backoff.ms", "14000"),
    ):
        script.both(BROKER, NODE, setting)
        script.increment(BROKER, "", (setting[0], SET, setting[1]), dry=True)
    script.increment(BROKER, "", ("max.connections", SET, "5000"), ("log.retention.ms", SET, "7"))
    script.increment(BROKER, "", ("max.connections", APPEND, "5"))
    script.increment(BROKER, NODE, ("no.such.setting", APPEND, "5"))
    script.increment(BROKER, NODE, ("log.cleanup.policy", APPEND, "compact"))
    keys = ["log.cleaner.backoff.ms", "log.retention.ms", "max.connections", "log.cleanup.policy"]
    script.describe(BROKER, NODE, [*keys, "no.such.setting", "leader.replication.throttled.rate"])
    script.describe(BROKER, "", keys)
    script.describe(TOPIC, "t", ["retention.ms", "segment.ms"])
    script.alter(TOPIC, "t")
    script.describe(TOPIC, "t", ["retention.ms", "segment.ms", "cleanup.policy"])
    script.alter(BROKER, NODE)
    script.increment(BROKER, "", *((name, DELETE, None) for name in keys))
    script.describe(BROKER, NODE, keys)


def alter_groups(script: Script) -> None:
    for setting in (
        ("consumer.session.timeout.ms", "1"),
        ("consumer.session.timeout.ms", "100000"),
        ("consumer.session.timeout.ms", "x"),
        ("consumer.session.timeout.ms", None),
        ("consumer.heartbeat.interval.ms", "1"),
        ("consumer.heartbeat.interval.ms", "20000"),
        ("no.such.setting", "1"),
    ):
        script.both(GROUP, "g", setting)
    script.both(GROUP, "", ("consumer.session.timeout.ms", "50000"))
    script.both(GROUP, "g", ("consumer.session.timeout.ms", "50000"))
    script.both(GROUP, "g", ("share.session.timeout.ms", "46000"))
    script.increment(GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "15000"))
    script.increment(GROUP, "g", ("consumer.heartbeat.interval.ms", APPEND, "1"))
    script.increment(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    script.describe(GROUP, "g", GROUP_KEYS)
    script.increment(GROUP, "g", ("consumer.session.timeout.ms", DELETE, None))
    script.describe(GROUP, "g", GROUP_KEYS)


def alter_loggers(script: Script) -> None:
    for name in (NODE, "77", "", "abc", f"+-{NODE}"):
        script.alter(LOGGER, name, ("root", "INFO"))
        script.increment(LOGGER, name, ("root", SET, "INFO"), dry=True)
    script.increment(LOGGER, NODE, ("no.such.logger", SET, "INFO"))
    script.increment(LOGGER, NODE, ("root", SET, "LOUD"))
    script.increment(LOGGER, NODE, ("root", DELETE, None))
    script.increment(LOGGER, NODE, ("root", APPEND, "INFO"))
    script.increment(LOGGER, NODE, ("root", SET, "WARN"))
    script.describe(LOGGER, NODE, ["root"])
    for kind in (0, 1, 99):
        script.both(kind, "x", ("a", "b"))


def list_resources(script: Script) -> None:
    script.list(0)
    script.list(1)
    for kind in (TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP, 1, 99):
        script.list(1, kind)
    script.list(1, TOPIC, TOPIC, GROUP)
    script.list(1, TOPIC, 99)
    script.alter(GROUP, "g")
    script.list(1, GROUP)


@pytest.fixture(scope="module")
def expected() -> Iterator[list[object]]:
    with ApacheKafka(settings=SETTINGS) as kafka, RawClient(kafka.bootstrap_servers) as client:
        script = Script(client)
        play(script)
        yield script.answers


@pytest.fixture
def _root_level() -> Iterator[None]:
    before = logging.root.level
    logging.root.setLevel(logging.INFO)
    yield
    logging.root.setLevel(before)


@pytest.mark.usefixtures("_root_level")
def test_every_answer_is_kafkas(expected: list[object]) -> None:
    with Broker(settings=SETTINGS) as broker, RawClient(broker.bootstrap_servers) as client:
        script = Script(client)
        play(script)
    more = [each for each in script.answers if each not in expected]
    fewer = [each for each in expected if each not in script.answers]
    assert len(script.answers) == len(expected) >= ANSWERS_MIN, f"ours: {more}\nKafka: {fewer}"
    pairs = zip(script.answers, expected, strict=True)
    different = [f"{ours}\nKafka: {theirs}" for ours, theirs in pairs if ours != theirs]
    assert not different, "\n".join(different)
