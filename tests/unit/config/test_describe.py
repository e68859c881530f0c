"""Settings as DescribeConfigs shows them."""

from tidelog.config import BrokerConfig, DescribedSetting, Source, Synonym
from tidelog.config.describe import describe_broker, describe_group, describe_topic
from tidelog.config.setting import Kind
from tidelog.config.table import TOPIC_SETTINGS


def named(described: list[DescribedSetting], name: str) -> DescribedSetting:
    (found,) = (each for each in described if each.name == name)
    return found


def topic(broker: BrokerConfig, overrides: dict[str, str], name: str) -> DescribedSetting:
    return named(describe_topic(broker, overrides), name)


def broker_setting(broker: BrokerConfig, name: str, **dynamic: dict[str, str]) -> DescribedSetting:
    described = describe_broker(
        broker,
        dynamic_broker=dynamic.get("own", {}),
        dynamic_default=dynamic.get("default", {}),
    )
    return named(described, name)


def test_a_topic_setting_names_every_source_the_strongest_first() -> None:
    broker = BrokerConfig({"log.segment.bytes": "2000000"}).with_dynamic(
        {"log.segment.bytes": "4000000"}, {"log.segment.bytes": "3000000"}
    )
    described = topic(broker, {"segment.bytes": "5000000"}, "segment.bytes")
    assert described == DescribedSetting(
        name="segment.bytes",
        value="5000000",
        source=Source.TOPIC,
        read_only=False,
        is_sensitive=False,
        type=3,
        documentation=TOPIC_SETTINGS["segment.bytes"].help,
        synonyms=(
            Synonym("segment.bytes", "5000000", Source.TOPIC),
            Synonym("log.segment.bytes", "4000000", Source.DYNAMIC_BROKER),
            Synonym("log.segment.bytes", "3000000", Source.DYNAMIC_DEFAULT),
            Synonym("log.segment.bytes", "2000000", Source.STATIC_BROKER),
            Synonym("log.segment.bytes", "1073741824", Source.DEFAULT),
        ),
    )


def test_another_form_of_the_brokers_setting_counts_only_behind_the_first() -> None:
    static = BrokerConfig({"log.retention.hours": "1"})
    described = topic(static, {}, "retention.ms")
    assert (described.value, described.source) == ("3600000", Source.DEFAULT)
    assert described.synonyms == ()
    altered = static.with_dynamic({}, {"log.retention.ms": "9"})
    described = topic(altered, {}, "retention.ms")
    assert (described.value, described.source) == ("9", Source.DYNAMIC_DEFAULT)
    assert described.synonyms == (
        Synonym("log.retention.ms", "9", Source.DYNAMIC_DEFAULT),
        Synonym("log.retention.hours", "1", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )


def test_a_topic_setting_without_a_broker_setting_is_default_or_its_own() -> None:
    name = "leader.replication.throttled.replicas"
    described = topic(BrokerConfig(), {}, name)
    assert (described.value, described.source, described.synonyms) == ("", Source.DEFAULT, ())
    described = topic(BrokerConfig(), {name: "0:1"}, name)
    assert (described.value, described.source) == ("0:1", Source.TOPIC)


def test_all_topic_settings_are_shown_but_those_for_tests() -> None:
    shown = {each.name: each for each in describe_topic(BrokerConfig(), {})}
    assert set(TOPIC_SETTINGS) - set(shown) == {"internal.segment.bytes"}
    assert shown["cleanup.policy"].value == "delete"
    assert shown["cleanup.policy"].type == Kind.LIST
    assert shown["preallocate"].value == "false"
    assert shown["min.cleanable.dirty.ratio"].value == "0.5"
    assert all(each.source is Source.DEFAULT and not each.read_only for each in shown.values())


def test_a_broker_setting_shows_its_own_value_not_that_of_another_form() -> None:
    broker = BrokerConfig({"log.retention.hours": "1"})
    milliseconds = broker_setting(broker, "log.retention.ms")
    assert (milliseconds.value, milliseconds.source) == (None, Source.DEFAULT)
    assert (milliseconds.synonyms, milliseconds.read_only) == ((), False)
    hours = broker_setting(broker, "log.retention.hours")
    assert (hours.value, hours.source, hours.read_only) == ("1", Source.STATIC_BROKER, True)


def test_an_altered_broker_setting_names_what_it_hides() -> None:
    described = broker_setting(
        BrokerConfig({"max.connections": "1"}),
        "max.connections",
        own={"max.connections": "3"},
        default={"max.connections": "2"},
    )
    assert (described.value, described.source) == ("3", Source.DYNAMIC_BROKER)
    assert [synonym.value for synonym in described.synonyms] == ["3", "2", "1", "2147483647"]


def test_the_id_is_shown_under_both_names() -> None:
    for given in ("node.id", "broker.id"):
        broker = BrokerConfig({given: "7"})
        assert broker_setting(broker, "node.id").value == "7"
        assert broker_setting(broker, "broker.id").value == "7"


def test_no_certain_broker_shows_only_what_was_altered_for_all() -> None:
    (described,) = describe_broker(
        BrokerConfig({"num.partitions": "5"}),
        dynamic_broker=None,
        dynamic_default={"message.max.bytes": "5"},
    )
    assert (described.name, described.value) == ("message.max.bytes", "5")
    assert described.source == Source.DYNAMIC_DEFAULT
    assert described.synonyms == (Synonym("message.max.bytes", "5", Source.DYNAMIC_DEFAULT),)


def test_a_group_shows_its_own_settings_before_those_of_the_broker() -> None:
    name = "consumer.session.timeout.ms"
    session, interval = reversed(describe_group(BrokerConfig(), {name: "50000"}))
    assert (session.name, session.value, session.source) == (name, "50000", Source.GROUP)
    assert session.synonyms == (
        Synonym(name, "50000", Source.GROUP),
        Synonym(f"group.{name}", "45000", Source.DEFAULT),
    )
    assert (interval.value, interval.source) == ("5000", Source.DEFAULT)
    described = describe_group(BrokerConfig(), {"share.isolation.level": "read_committed"})
    assert [each.value for each in described] == ["5000", "45000", "read_committed"]


def test_a_setting_that_nothing_uses_is_shown_once_it_was_altered() -> None:
    altered = {"num.io.threads": "5", "sasl.jaas.config": "secret", "my.plugin.setting": "secret"}
    described = describe_broker(BrokerConfig(), dynamic_broker=altered, dynamic_default={})
    shown = {each.name: each for each in described if each.name in altered}
    assert {name: each.value for name, each in shown.items()} == {
        "num.io.threads": "5",
        "sasl.jaas.config": None,
        "my.plugin.setting": None,
    }
    assert shown["num.io.threads"].synonyms == (
        Synonym("num.io.threads", "5", Source.DYNAMIC_BROKER),
    )
    assert shown["my.plugin.setting"].read_only


def test_a_rate_of_replication_is_shown_only_where_it_is_set() -> None:
    name = "leader.replication.throttled.rate"

    def shown(altered: dict[str, str]) -> list[tuple[str | None, tuple[Synonym, ...]]]:
        described = describe_broker(BrokerConfig(), dynamic_broker=altered, dynamic_default={})
        return [(each.value, each.synonyms) for each in described if each.name == name]

    assert shown({}) == []
    assert shown({name: "1000"}) == [("1000", (Synonym(name, "1000", Source.DYNAMIC_BROKER),))]
