"""The settings of a broker.

Names and defaults are Kafka's wherever Kafka has the setting; rows marked as ours have none there.
A row is here because some code reads it: names that Kafka knows and nothing here reads stand in
`kafka_names`. The broker's defaults of topic settings stand in `topic_defaults`.
"""

from __future__ import annotations

from typing import Final

from tidelog.config.checks import (
    check_connection_overrides,
    check_host_port,
    check_not_empty,
    check_roles,
)
from tidelog.config.group_settings import GROUP_SETTINGS
from tidelog.config.setting import INT_MAX, LONG_MAX, Kind, Setting, Update
from tidelog.config.topic_defaults import TOPIC_DEFAULTS
from tidelog.config.topic_settings import MIB

DEFAULT_REQUEST_POOL_BYTES: Final = 256 * MIB

_IDENTITY: Final = (
    Setting(
        "node.id",
        Kind.INT,
        0,
        "The id of this broker, one per broker of a cluster. Kafka has no default here; a single "
        "broker needs none.",
        minimum=0,
        kafka_default="",
    ),
    Setting(
        "broker.id",
        Kind.INT,
        -1,
        "An older name of `node.id`, taken when that is not set; -1 counts as not set.",
        minimum=-1,
    ),
    Setting(
        "broker.rack",
        Kind.STRING,
        None,
        "Where this broker stands; told to clients with the metadata.",
    ),
    Setting(
        "process.roles",
        Kind.LIST,
        [],
        "The roles of a node in Kafka. A file for a node with the role `broker` is taken (and the "
        "broker does its own controlling), one for a mere `controller` is refused.",
        check=check_roles,
        kafka_default="",
    ),
    Setting(
        "log.dirs",
        Kind.LIST,
        None,
        "The directories that hold the data; takes precedence over `log.dir`.",
        check=check_not_empty,
        fallbacks=(("log.dir", 1),),
    ),
    Setting(
        "log.dir",
        Kind.LIST,
        ["tidelog-data"],
        "The directory that holds the data, when `log.dirs` is not set. Kafka's default is lost "
        "when the machine restarts.",
        check=check_not_empty,
        kafka_default="/tmp/kafka-logs",
    ),
)

_LISTENERS: Final = (
    Setting(
        "listeners",
        Kind.LIST,
        ["PLAINTEXT://127.0.0.1:9092"],
        "Where clients connect, as NAME://HOST:PORT. Kafka opens every interface by default; here "
        "a listener beyond this machine is opened only when it is asked for with its address "
        "(0.0.0.0 for all), and a listener without a host is opened on 127.0.0.1. Port 0 takes "
        "a free one.",
        check=check_not_empty,
        kafka_default="PLAINTEXT://:9092",
    ),
    Setting(
        "advertised.listeners",
        Kind.LIST,
        None,
        "The addresses that clients are told to connect to. Not set, each client is told the "
        "address that it connected to.",
        check=check_not_empty,
    ),
    Setting(
        "listener.security.protocol.map",
        Kind.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name stands for. Only PLAINTEXT is offered by this "
        "version.",
    ),
    Setting(
        "inter.broker.listener.name",
        Kind.STRING,
        None,
        "The listener that brokers use among themselves. Not set, it is the one named PLAINTEXT, "
        "or the first.",
    ),
    Setting(
        "controller.listener.names",
        Kind.LIST,
        [],
        "Listeners of Kafka's controllers; they are not opened, since the controller is part of "
        "the broker.",
        kafka_default="",
    ),
    Setting(
        "metrics.listener",
        Kind.STRING,
        "",
        "HOST:PORT of /metrics, /healthz and /readyz; empty for none. Port 0 takes a free one.",
        check=check_host_port,
        kafka=False,
    ),
    Setting(
        "metrics.hosts",
        Kind.LIST,
        [],
        "Names under which /metrics and /readyz may be asked for, besides any IP address, "
        "`localhost`, and the names in `metrics.listener` and `advertised.listeners`; `*` allows "
        "every name. Without this check a page in a browser could read them.",
        kafka=False,
    ),
)

_CONNECTIONS: Final = (
    Setting(
        "socket.request.max.bytes",
        Kind.INT,
        100 * MIB,
        "The largest request that is read; a larger one closes its connection.",
        minimum=1,
    ),
    Setting(
        "queued.max.request.bytes",
        Kind.LONG,
        DEFAULT_REQUEST_POOL_BYTES,
        "The memory that requests being read or worked on may hold together; connections are not "
        "read from while it is used up. Kafka sets no limit by default; -1 means our default. "
        "Must not be smaller than `socket.request.max.bytes`.",
        minimum=-1,
        kafka_default="-1",
    ),
    Setting(
        "connections.max.inflight.requests",
        Kind.INT,
        5000,
        "How many requests of one connection may be unanswered before reading from it pauses.",
        minimum=1,
        kafka=False,
    ),
    Setting(
        "max.connections",
        Kind.INT,
        INT_MAX,
        "How many connections are open at once; further ones are closed.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    ),
    Setting(
        "max.connections.per.ip",
        Kind.INT,
        INT_MAX,
        "How many connections one address may have.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        Kind.STRING,
        "",
        "Other limits for single addresses, as ADDRESS:COUNT parted by commas.",
        check=check_connection_overrides,
        update=Update.CLUSTER_WIDE,
    ),
    Setting(
        "connections.max.idle.ms",
        Kind.LONG,
        600_000,
        "How long a connection may be silent before it is closed; a negative value never.",
    ),
    Setting(
        "connections.first.byte.ms",
        Kind.LONG,
        30_000,
        "How long a new connection may take to send its first byte.",
        minimum=1,
        kafka=False,
    ),
    Setting(
        "connections.frame.timeout.ms",
        Kind.LONG,
        30_000,
        "How long a request that has begun to arrive may make no progress, and an answer that has "
        "begun to leave likewise, before the connection is closed.",
        minimum=1,
        kafka=False,
    ),
    Setting(
        "socket.send.buffer.bytes",
        Kind.INT,
        -1,
        "The socket's send buffer; -1 leaves it to the operating system, which fits it to the "
        "connection.",
        minimum=-1,
        kafka_default="102400",
    ),
    Setting(
        "socket.receive.buffer.bytes",
        Kind.INT,
        -1,
        "The socket's receive buffer; -1 leaves it to the operating system, which fits it to the "
        "connection.",
        minimum=-1,
        kafka_default="102400",
    ),
    Setting(
        "socket.listen.backlog.size",
        Kind.INT,
        50,
        "How many connections may wait to be accepted.",
        minimum=1,
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        "How many incremental fetch sessions are kept.",
        minimum=0,
    ),
    Setting(
        "fetch.session.partitions.max",
        Kind.INT,
        50_000,
        "The most partitions of one incremental fetch session. A client that fetches more gets no "
        "session and names all its partitions in every fetch.",
        minimum=0,
        kafka=False,
    ),
    Setting(
        "fetch.sessions.max.bytes",
        Kind.LONG,
        128 * MIB,
        "The memory of all incremental fetch sessions together, at 500 bytes for each partition. "
        "When it is used up, a new session replaces one whose partitions cannot be read, one that "
        "was not used for two minutes, or a smaller one; otherwise the client gets no session.",
        minimum=0,
        kafka=False,
    ),
    Setting(
        "fetch.max.bytes",
        Kind.INT,
        55 * MIB,
        "The most bytes that one fetch is answered with, whatever it asks for; a single larger "
        "batch is still sent whole.",
        minimum=1024,
    ),
    Setting(
        "shutdown.drain.ms",
        Kind.LONG,
        10_000,
        "How long a stopping broker waits for requests in work before it closes connections.",
        minimum=0,
        kafka=False,
    ),
)

_TOPICS: Final = (
    Setting(
        "num.partitions",
        Kind.INT,
        1,
        "Partitions of a topic that is created without saying how many.",
        minimum=1,
    ),
    Setting(
        "default.replication.factor",
        Kind.INT,
        1,
        "Replicas of a topic that is created without saying how many.",
        minimum=1,
    ),
    Setting(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        "Whether a topic is created when a client asks for one that does not exist.",
    ),
    Setting(
        "delete.topic.enable",
        Kind.BOOLEAN,
        True,
        "Whether topics may be deleted.",
    ),
    Setting(
        "producer.id.expiration.ms",
        Kind.INT,
        86_400_000,
        "How long a partition remembers an idle producer, to recognise what it sends twice.",
        minimum=1,
        update=Update.CLUSTER_WIDE,
    ),
    Setting(
        "max.decompressed.batch.bytes",
        Kind.LONG,
        -1,
        "The size to which a compressed batch is inflated at most where records must be looked "
        "into. -1: eight times the topic's `max.message.bytes`, at most 64 MiB, and never less "
        "than `max.message.bytes`.",
        minimum=-1,
        kafka=False,
    ),
)

_STORAGE: Final = (
    Setting(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300_000,
        "How often logs are checked for segments that retention may remove.",
        minimum=1,
    ),
    Setting(
        "log.cleaner.enable",
        Kind.BOOLEAN,
        True,
        "Whether logs with `cleanup.policy=compact` are compacted.",
    ),
    Setting(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        "How long the cleaner rests when no log needs it.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        128 * MIB,
        "The memory for the keys of one clean, which is taken as it is needed. A log with more "
        "keys than fit (some 700,000 in the default) is cleaned in several goes.",
        minimum=MIB,
        update=Update.CLUSTER_WIDE,
    ),
    Setting(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        LONG_MAX,
        "How often logs are checked for records that `flush.ms` wants flushed, and its value where "
        "`log.flush.interval.ms` is not set.",
        minimum=1,
    ),
    Setting(
        "flusher.interval.ms",
        Kind.INT,
        1000,
        "The age that unflushed data of `durability=replicated` topics is meant not to exceed: the "
        "background flusher takes dirty segments, oldest first, with this aim.",
        minimum=1,
        kafka=False,
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        "How often the recovery points of the logs are written.",
        minimum=0,
    ),
    Setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        "How often the start offsets of the logs are written.",
        minimum=0,
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind.LONG,
        5000,
        "How often the high watermarks are written.",
        minimum=1,
    ),
    Setting(
        "disk.min.free.bytes",
        Kind.LONG,
        -1,
        "The free space of a data directory's file system below which producers are refused with a "
        "retriable error while reads and commits go on. Commits are refused in the last 64 MiB, or "
        "in half of this where that is less. -1: 2 GiB or 5 % of the file system, the smaller.",
        minimum=-1,
        update=Update.CLUSTER_WIDE,
        kafka=False,
    ),
    Setting(
        "open.files.max",
        Kind.INT,
        -1,
        "How many segment and index files are kept open. -1: half of what the operating system "
        "lets the process open.",
        minimum=-1,
        kafka=False,
    ),
    Setting(
        "offload.threads",
        Kind.INT,
        4,
        "Threads for what must not run on the event loop: flushing, unlinking, cold reads, "
        "inflating.",
        minimum=1,
        maximum=64,
        kafka=False,
    ),
)

BROKER_SECTIONS: Final = (
    ("Identity and data", _IDENTITY),
    ("Listeners", _LISTENERS),
    ("Connections and requests", _CONNECTIONS),
    ("Topics and producers", _TOPICS),
    ("Groups and their offsets", GROUP_SETTINGS),
    ("Storage", _STORAGE),
    ("Defaults of topics", TOPIC_DEFAULTS),
)
