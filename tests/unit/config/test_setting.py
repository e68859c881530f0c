"""How the text of a setting becomes a value, and which texts are refused."""

import pytest

from tidelog.config.loader import environment_name
from tidelog.config.setting import Kind, Setting, format_value
from tidelog.config.table import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    SETTINGS,
    TOPIC_SETTINGS,
    kafka_names,
)
from tidelog.errors import ConfigError


def setting(kind: Kind, **rest: object) -> Setting:
    return Setting("some.name", None, "for the test", kind, **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.INT, "12", 12),
        (Kind.INT, " -1 ", -1),
        (Kind.INT, "+7", 7),
        (Kind.INT, "2147483647", 2147483647),
        (Kind.SHORT, "-32768", -32768),
        (Kind.LONG, "9223372036854775807", 9223372036854775807),
        (Kind.DOUBLE, "0.5", 0.5),
        (Kind.DOUBLE, "1e3", 1000.0),
        (Kind.BOOLEAN, "TRUE", True),
        (Kind.BOOLEAN, " false", False),
        (Kind.STRING, " text ", "text"),
        (Kind.PASSWORD, " secret ", " secret "),
        (Kind.LIST, "a, b ,c", ["a", "b", "c"]),
        (Kind.LIST, "", []),
    ],
)
def test_a_text_is_parsed_by_its_kind(kind: Kind, text: str, value: object) -> None:
    assert setting(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.INT, ""),
        (Kind.INT, "-"),
        (Kind.INT, "1_000"),
        (Kind.INT, "1 000"),
        (Kind.INT, "0x10"),
        (Kind.INT, "1.0"),
        (Kind.INT, "١٢"),
        (Kind.INT, "2147483648"),
        (Kind.INT, "9" * 5000),
        (Kind.SHORT, "32768"),
        (Kind.LONG, "9223372036854775808"),
        (Kind.DOUBLE, "1_0"),
        (Kind.DOUBLE, "nan"),
        (Kind.DOUBLE, "half"),
        (Kind.BOOLEAN, "yes"),
        (Kind.BOOLEAN, "1"),
    ],
)
def test_a_text_that_is_not_of_the_kind_is_refused(kind: Kind, text: str) -> None:
    with pytest.raises(ConfigError, match=r"Invalid value .* for configuration some.name"):
        setting(kind).parse(text)


def test_bounds_are_inclusive_and_named() -> None:
    bounded = setting(Kind.INT, minimum=1, maximum=17)
    assert [bounded.parse("1"), bounded.parse("17")] == [1, 17]
    with pytest.raises(ConfigError, match="at least 1"):
        bounded.parse("0")
    with pytest.raises(ConfigError, match="no more than 17"):
        bounded.parse("18")


def test_choices_hold_for_each_item_of_a_list() -> None:
    chosen = setting(Kind.LIST, choices=("compact", "delete"))
    assert chosen.parse("delete,compact") == ["delete", "compact"]
    assert chosen.parse("") == []
    with pytest.raises(ConfigError, match=r"keep .* one of: compact, delete"):
        chosen.parse("delete,keep")
    with pytest.raises(ConfigError, match="must not be empty"):
        chosen.parse("delete,,compact")


def test_a_refused_secret_is_not_shown() -> None:
    def refuse(value: object) -> None:
        raise ConfigError("too weak")

    with pytest.raises(ConfigError, match="too weak") as refusal:
        setting(Kind.PASSWORD, check=refuse).parse("hunter2")
    assert "hunter2" not in str(refusal.value)


def test_every_default_is_a_valid_value_of_its_own_setting() -> None:
    for each in SETTINGS:
        if each.default is not None:
            assert each.parse(format_value(each.default)) == each.default, each.name


def test_every_name_stands_once_and_names_one_environment_variable() -> None:
    assert len(SETTINGS) == sum(map(len, (BROKER_SETTINGS, TOPIC_SETTINGS, GROUP_SETTINGS)))
    names = [*BROKER_SETTINGS, *kafka_names()]
    assert len({environment_name(name) for name in names}) == len(names)
    assert not set(BROKER_SETTINGS) & kafka_names()


def test_every_topic_setting_falls_back_on_a_broker_setting_of_the_same_kind() -> None:
    for topic in TOPIC_SETTINGS.values():
        if topic.broker_name is not None:
            broker = BROKER_SETTINGS[topic.broker_name]
            assert (broker.kind, broker.unused) == (topic.kind, topic.unused), topic.name


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("compression.gzip.level", "9", "0"),
        ("compression.gzip.level", "-1", "10"),
        ("leader.replication.throttled.replicas", "0:1,1:2", "0:a"),
        ("leader.replication.throttled.replicas", "*", "*,0:1"),
        ("segment.bytes", "1048576", "1048575"),
        ("retention.ms", "-1", "-2"),
    ],
)
def test_special_rules_of_topic_settings(name: str, good: str, bad: str) -> None:
    TOPIC_SETTINGS[name].parse(good)
    with pytest.raises(ConfigError, match=name):
        TOPIC_SETTINGS[name].parse(bad)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("metrics.listener", "127.0.0.1:9100", "9100"),
        ("metrics.listener", "[::1]:0", "::1:0"),
        ("metrics.listener", "", "localhost:99999"),
        ("process.roles", "broker,controller", "controller"),
        ("process.roles", "broker", "broker,observer"),
        ("max.connections.per.ip.overrides", "10.0.0.1:5,[::1]:7", "10.0.0.1"),
        ("log.dirs", "/a,/b", "/a,,/b"),
        ("listeners", "PLAINTEXT://:9092", ""),
        ("log.retention.hours", "-1", "0"),
    ],
)
def test_special_rules_of_broker_settings(name: str, good: str, bad: str) -> None:
    BROKER_SETTINGS[name].parse(good)
    with pytest.raises(ConfigError, match=name):
        BROKER_SETTINGS[name].parse(bad)
