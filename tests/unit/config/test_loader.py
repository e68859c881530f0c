"""Settings from files, environment and flags: which wins, what is warned about, what is refused."""

from pathlib import Path

import pytest

from tidelog.config import load
from tidelog.errors import ConfigError

SHARED_BY_BOTH = """
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
#log.retention.bytes=1073741824
log.retention.hours=168
#log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
KRAFT = f"""
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
log.dirs=/tmp/kraft-combined-logs
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
{SHARED_BY_BOTH}"""
ZOOKEEPER = f"""
broker.id=0
#listeners=PLAINTEXT://:9092
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
{SHARED_BY_BOTH}"""
UNUSED_IN_BOTH = {
    "num.network.threads",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "transaction.state.log.min.isr",
}


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(**sources: object) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(**sources)  # type: ignore[arg-type]
    return str(error.value).split("\n")


def unused_names(warnings: tuple[str, ...]) -> list[str]:
    tail = " is known to Kafka and not used by this broker"
    return [text.partition(tail)[0].split(": ")[-1] for text in warnings if tail in text]


def test_nothing_given_gives_the_defaults() -> None:
    config = load()
    assert config.warnings == ()
    assert config.node_id == 0
    assert config.get_int("log.segment.bytes") == 1024**3
    assert not config.is_set("log.segment.bytes")


def test_the_stock_file_of_kafka_4_starts_a_broker(tmp_path: Path) -> None:
    config = load(files=[write(tmp_path / "server.properties", KRAFT)])
    assert config.node_id == 1
    assert config.get_list("log.dirs") == ["/tmp/kraft-combined-logs"]
    assert [listener.name for listener in config.listeners.opened] == ["PLAINTEXT"]
    assert config.listeners.advertised == {"PLAINTEXT": ("localhost", 9092)}
    names = unused_names(config.warnings)
    assert len(names) == len(set(names))
    assert set(names) == UNUSED_IN_BOTH | {
        "controller.quorum.bootstrap.servers",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    }


def test_the_stock_file_of_kafka_3_with_zookeeper_starts_a_broker(tmp_path: Path) -> None:
    config = load(files=[write(tmp_path / "server.properties", ZOOKEEPER)])
    assert config.node_id == 0
    assert set(unused_names(config.warnings)) == UNUSED_IN_BOTH | {
        "zookeeper.connect",
        "zookeeper.connection.timeout.ms",
    }
    assert [str(listener.host) for listener in config.listeners.opened] == ["127.0.0.1"]


def test_later_files_then_environment_then_flags_win(tmp_path: Path) -> None:
    first = write(tmp_path / "a.properties", "num.partitions=1\nlog.roll.hours=1\nbroker.rack=a\n")
    second = write(tmp_path / "b.yaml", "num.partitions: 2\nlog: {roll.hours: 2}\n")
    environment = {"TIDELOG_NUM_PARTITIONS": "3", "HOME": "/", "TIDELOG_LONG": "1"}
    assert load(files=[first]).get_int("num.partitions") == 1
    assert load(files=[first, second]).get_int("num.partitions") == 2
    assert load(files=[first, second], environment=environment).get_int("num.partitions") == 3
    config = load(files=[first, second], environment=environment, overrides={"num.partitions": "4"})
    assert config.get_int("num.partitions") == 4
    assert config.get_int("log.roll.hours") == 2
    assert config.get_str("broker.rack") == "a"
    assert config.warnings == ()


def test_a_stronger_source_replaces_every_form_of_a_setting(tmp_path: Path) -> None:
    file = write(tmp_path / "a.properties", "log.retention.ms=1000\nlog.dirs=/a\nnode.id=3\n")
    overrides = {"log.retention.hours": "2", "log.dir": "/b", "broker.id": "4"}
    config = load(files=[file], overrides=overrides)
    assert config.get_int("log.retention.ms") == 2 * 3_600_000
    assert config.get_list("log.dirs") == ["/b"]
    assert config.node_id == 4


def test_within_one_source_the_finer_form_wins(tmp_path: Path) -> None:
    text = "log.retention.hours=1\nlog.retention.minutes=3\n"
    assert load(files=[write(tmp_path / "a", text)]).get_int("log.retention.ms") == 180_000


def test_all_problems_are_told_at_once_with_place_and_nearest_name(tmp_path: Path) -> None:
    text = "\nlog.segment.byte=1\nnum.partitions=none\nsegment.bytes=5\nnum.io.thread=1\n"
    file = write(tmp_path / "a.properties", text)
    environment = {"TIDELOG_LOG_RETENTION_HOUR": "1"}
    problems = refusal(files=[file], environment=environment, overrides={"zzz": "1"})
    assert problems == [
        "environment variable TIDELOG_LOG_RETENTION_HOUR sets no setting; "
        "did you mean TIDELOG_LOG_RETENTION_HOURS?",
        f"{file}:2: unknown setting log.segment.byte; did you mean log.segment.bytes?",
        f"{file}:3: Invalid value none for configuration num.partitions: Not a number of type INT",
        f"{file}:4: segment.bytes is a setting of topics; "
        "the broker's default is log.segment.bytes",
        f"{file}:5: unknown setting num.io.thread; did you mean num.io.threads?",
        "--set zzz: unknown setting zzz",
    ]


def test_a_group_setting_in_a_brokers_file_is_named_as_such(tmp_path: Path) -> None:
    file = write(tmp_path / "a.properties", "consumer.session.timeout.ms=1\n")
    assert refusal(files=[file]) == [
        f"{file}:1: consumer.session.timeout.ms is a setting of groups, not of brokers"
    ]


def test_yaml_problems_name_their_line(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yml", "log:\n  segment:\n    bytes: many\ndelete.topic.enable: no\n")
    assert refusal(files=[file]) == [
        f"{file}:3: Invalid value many for configuration log.segment.bytes: "
        "Not a number of type INT",
        f"{file}:4: Invalid value no for configuration delete.topic.enable: "
        "Expected value to be either true or false",
    ]


def test_a_broken_yaml_file_is_one_problem(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yml", "a: [\n")
    (problem,) = refusal(files=[file])
    assert problem.startswith(f"{file}:2: ")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.properties")
    large = tmp_path / "large.properties"
    large.write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    problems = refusal(files=[missing, str(tmp_path), str(large)])
    assert problems == [
        f"{missing}: No such file or directory",
        f"{tmp_path}: Is a directory",
        f"{large}: larger than 4194304 bytes, this is no settings file",
    ]


def test_a_name_set_twice_in_a_file_is_warned_about_and_the_last_wins(tmp_path: Path) -> None:
    file = write(tmp_path / "a.properties", "num.partitions=1\nnum.partitions=2\n")
    config = load(files=[file])
    assert config.get_int("num.partitions") == 2
    assert config.warnings == (
        f"{file}:2: num.partitions was set before at {file}:1; the last wins",
    )


def test_a_name_that_kafka_knows_is_warned_about_once_without_its_value(tmp_path: Path) -> None:
    text = "ssl.key.password=hunter2\nssl.key.password=hunter2\nlistener.name.x.sasl.y=hunter2\n"
    config = load(files=[write(tmp_path / "a.properties", text)])
    assert len(config.warnings) == 2
    assert not any("hunter2" in warning for warning in config.warnings)


def test_a_setting_in_the_table_that_nothing_acts_on_is_warned_about() -> None:
    config = load(overrides={"log.preallocate": "true"})
    assert unused_names(config.warnings) == ["log.preallocate"]


def test_environment_variables_of_other_programs_are_left_alone() -> None:
    environment = {
        "TIDELOG_PORT_9092_TCP_ADDR": "10.0.0.1",
        "TIDELOG_NUM_IO_THREADS": "8",
        "TIDELOG_BOOTSTRAP_SERVERS": "localhost:9092",
        "TIDELOG_CLIENT_CONFIG": "client.properties",
        "TIDELOG_BOOTSTRAP_PASSWORD": "secret",
    }
    config = load(environment=environment)
    assert config.warnings == (
        "environment variable TIDELOG_NUM_IO_THREADS sets what Kafka knows and this broker does "
        "not use",
        "environment variable TIDELOG_PORT_9092_TCP_ADDR sets no setting and is left alone",
    )


def test_a_byte_order_mark_and_latin_1_are_understood(tmp_path: Path) -> None:
    marked = tmp_path / "a.properties"
    marked.write_bytes(b"\xef\xbb\xbfbroker.rack=caf\xc3\xa9\n")
    latin = tmp_path / "b.properties"
    latin.write_bytes(b"broker.rack=caf\xe9\n")
    assert load(files=[marked]).get_str("broker.rack") == "café"
    assert load(files=[latin]).get_str("broker.rack") == "café"
