"""The effective settings of a broker, and its listeners."""

import pytest

from tidelog.config import BrokerConfig, Listener, Source, validate_broker_overrides
from tidelog.errors import ConfigError

LISTENER_MAP = "listener.security.protocol.map"


def test_typed_access() -> None:
    config = BrokerConfig({"log.dirs": "/a, /b", "auto.create.topics.enable": "false"})
    assert config.get_list("log.dirs") == ["/a", "/b"]
    assert config.get_bool("auto.create.topics.enable") is False
    assert config.get_int("num.partitions") == 1
    assert config.get_str("broker.rack") == ""
    assert config.get("broker.rack") is None
    with pytest.raises(KeyError):
        config.get("no.such.setting")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        BrokerConfig({"log.segment.bites": "1"})


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "2"}, 2 * 3_600_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, 300_000),
        ({"log.retention.minutes": "5", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_retention_is_asked_in_milliseconds_minutes_and_hours(
    given: dict[str, str], milliseconds: int
) -> None:
    assert BrokerConfig(given).get_int("log.retention.ms") == milliseconds


def test_the_flush_interval_falls_back_on_the_schedulers() -> None:
    assert BrokerConfig({}).get_int("log.flush.interval.ms") == 2**63 - 1
    scheduled = BrokerConfig({"log.flush.scheduler.interval.ms": "9"})
    assert scheduled.get_int("log.flush.interval.ms") == 9


def test_altered_settings_win_over_files_and_a_brokers_own_over_the_clusters() -> None:
    static = BrokerConfig({"message.max.bytes": "1", "log.retention.ms": "5"})
    cluster = static.with_dynamic({}, {"message.max.bytes": "2", "log.roll.ms": "8"})
    both = static.with_dynamic({"message.max.bytes": "3"}, {"message.max.bytes": "2"})
    assert [each.get_int("message.max.bytes") for each in (static, cluster, both)] == [1, 2, 3]
    assert [each.source("message.max.bytes") for each in (static, cluster, both)] == [
        Source.STATIC_BROKER,
        Source.DYNAMIC_DEFAULT,
        Source.DYNAMIC_BROKER,
    ]
    assert cluster.get_int("log.roll.ms") == 8
    assert both.get_int("log.retention.ms") == 5
    assert both.with_dynamic({}, {}).get_int("message.max.bytes") == 1


def test_an_altered_setting_wins_over_a_finer_form_in_a_file() -> None:
    config = BrokerConfig({"log.retention.minutes": "1"}).with_dynamic(
        {}, {"log.retention.ms": "7"}
    )
    assert config.get_int("log.retention.ms") == 7


@pytest.mark.parametrize(
    ("given", "node_id"),
    [
        ({}, 0),
        ({"node.id": "4"}, 4),
        ({"broker.id": "5"}, 5),
        ({"node.id": "4", "broker.id": "-1"}, 4),
        ({"node.id": "4", "broker.id": "4"}, 4),
    ],
)
def test_the_id_has_two_names(given: dict[str, str], node_id: int) -> None:
    config = BrokerConfig(given)
    assert config.node_id == config.get_int("broker.id") == node_id


def test_two_different_ids_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"node\.id is 4 and broker\.id is 5"):
        BrokerConfig({"node.id": "4", "broker.id": "5"})


def test_the_request_pool_must_hold_the_largest_request() -> None:
    with pytest.raises(ConfigError, match=r"queued\.max\.request\.bytes \(1000\) must not be"):
        BrokerConfig({"queued.max.request.bytes": "1000"})
    small = {"queued.max.request.bytes": "1000", "socket.request.max.bytes": "1000"}
    assert BrokerConfig(small).get_int("queued.max.request.bytes") == 1000
    unlimited = BrokerConfig({"queued.max.request.bytes": "-1"})
    assert unlimited.get_int("queued.max.request.bytes") == 256 * 1024 * 1024


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"session.timeout.ms": "44000"}, "must lie between"),
        ({"max.heartbeat.interval.ms": "4000"}, "must lie between"),
        (
            {"session.timeout.ms": "5000", "min.session.timeout.ms": "1"},
            "must be shorter than",
        ),
        ({"assignors": "uniform,random"}, "random is none of uniform, range"),
        ({"assignors": ""}, "at least one assignor"),
    ],
)
def test_settings_of_consumer_groups_that_contradict_are_refused(
    given: dict[str, str], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        BrokerConfig({f"group.consumer.{name}": value for name, value in given.items()})


def test_what_may_be_altered_while_brokers_run() -> None:
    broker = BrokerConfig()
    both = {"log.retention.ms": "5", "max.connections": "9"}
    validate_broker_overrides(broker, both, per_broker=False)
    with pytest.raises(ConfigError, match=r"dynamically: \[num\.partitions, listeners\]"):
        validate_broker_overrides(
            broker,
            {"num.partitions": "5", "max.connections": "9", "listeners": "A://h:1"},
            per_broker=True,
        )
    with pytest.raises(ConfigError, match="at least 1048576"):
        validate_broker_overrides(broker, {"log.segment.bytes": "5"}, per_broker=True)


def test_what_kafka_takes_while_it_runs_may_be_altered_although_nothing_uses_it() -> None:
    broker = BrokerConfig()
    taken = {
        "num.io.threads": "5",
        "log.cleaner.threads": "2",
        "num.replica.fetchers": "2",
        # Kafka takes a name that nobody knows, too: it may be one of somebody's plugin.
        "my.plugin.setting": "x",
        # One that it has forgotten is such a name.
        "zookeeper.connect": "x",
    }
    validate_broker_overrides(broker, taken, per_broker=False)
    of_one = {"sasl.kerberos.service.name": "k", "listener.name.a.ssl.provider": "secret"}
    validate_broker_overrides(broker, of_one, per_broker=True)
    altered = broker.with_dynamic(of_one, taken)
    assert altered.unused() == sorted({*taken, *of_one})
    with pytest.raises(ConfigError, match=r"default cluster level.*: \[sasl.*, listener\.name"):
        validate_broker_overrides(broker, of_one, per_broker=False)
    with pytest.raises(ConfigError, match=r"dynamically: \[queued\.max\.requests\]"):
        validate_broker_overrides(broker, {"queued.max.requests": "5"}, per_broker=True)
    with pytest.raises(ConfigError, match=r"only per-listener.*: \[ssl\.key\.password\]"):
        validate_broker_overrides(broker, {"ssl.key.password": "secret"}, per_broker=True)
    with pytest.raises(ConfigError, match="Not a number of type INT"):
        validate_broker_overrides(broker, {"num.io.threads": "many"}, per_broker=True)


def test_parsed_addresses() -> None:
    config = BrokerConfig(
        {
            "metrics.listener": "[::1]:9100",
            "max.connections.per.ip.overrides": "10.0.0.1:5,[fe80::1]:7",
        }
    )
    assert config.metrics_listener == ("::1", 9100)
    assert config.connections_per_host == {"10.0.0.1": 5, "fe80::1": 7}
    assert BrokerConfig().metrics_listener is None
    assert BrokerConfig({"metrics.listener": ":9100"}).metrics_listener == ("127.0.0.1", 9100)


def test_several_listeners_with_their_own_inter_broker_one() -> None:
    config = BrokerConfig(
        {
            "allow.plaintext.listeners": "true",
            "listeners": "CLIENT://0.0.0.0:9092, internal://[::1]:9094",
            LISTENER_MAP: "CLIENT:PLAINTEXT,INTERNAL:plaintext",
            "inter.broker.listener.name": "INTERNAL",
            "advertised.listeners": "CLIENT://broker.example:19092",
        }
    )
    assert config.listeners.opened == (
        Listener("CLIENT", "PLAINTEXT", "0.0.0.0", 9092),
        Listener("INTERNAL", "PLAINTEXT", "::1", 9094),
    )
    assert config.listeners.inter_broker == "INTERNAL"
    assert config.listeners.advertised == {"CLIENT": ("broker.example", 19092)}
    assert [each.split()[1] for each in config.warnings] == ["CLIENT"], "open to others"


def test_a_listener_without_a_host_is_opened_on_loopback_with_a_warning() -> None:
    config = BrokerConfig({"listeners": "PLAINTEXT://:9092"})
    assert config.listeners.opened[0].host == "127.0.0.1"
    (warning,) = config.warnings
    assert "write PLAINTEXT://0.0.0.0:9092 to open it on every interface" in warning


def test_two_listeners_may_both_take_a_free_port() -> None:
    listeners = "A://127.0.0.1:0,B://127.0.0.1:0"
    config = BrokerConfig({"listeners": listeners, LISTENER_MAP: "A:PLAINTEXT,B:PLAINTEXT"})
    assert [listener.port for listener in config.listeners.opened] == [0, 0]
    assert config.listeners.inter_broker == "A"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"listeners": "127.0.0.1:9092"}, "is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:65536"}, "is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "is not NAME://HOST:PORT"),
        ({"listeners": "OTHER://h:1"}, "add OTHER:PLAINTEXT to listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "a different name"),
        (
            {"listeners": "A://h:1,B://h:1", LISTENER_MAP: "A:PLAINTEXT,B:PLAINTEXT"},
            "a different address",
        ),
        ({LISTENER_MAP: "PLAINTEXT"}, "is not NAME:PROTOCOL"),
        ({LISTENER_MAP: "PLAINTEXT:TLS"}, "is not NAME:PROTOCOL"),
        ({"inter.broker.listener.name": "B"}, "B is not among the listeners"),
        ({"advertised.listeners": "B://h:1"}, "B is not among the listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "no address that a client can"),
        ({"advertised.listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "given twice"),
        ({"controller.listener.names": "PLAINTEXT"}, "none is left to open"),
    ],
)
def test_listeners_that_contradict_are_refused(given: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        BrokerConfig(given)


def test_settings_that_nobody_has_altered_are_resolved_once() -> None:
    static = BrokerConfig({"log.segment.bytes": "2000000"})
    assert static.with_dynamic({}, {}) is static
    altered = static.with_dynamic({"log.segment.bytes": "3000000"}, {})
    assert altered.get_int("log.segment.bytes") == 3_000_000
    assert altered.with_dynamic({}, {}).get_int("log.segment.bytes") == 2_000_000
