"""The settings of a broker.

Names and defaults are Kafka's wherever Kafka has the setting; rows marked as ours have none there.
A row is here because some code reads it: names that Kafka knows and nothing here reads stand in
`kafka_names`. The broker's defaults of topic settings stand in `topic_defaults`.
"""

from __future__ import annotations

from typing import Final

from tidelog.config.audit_settings import AUDIT_SETTINGS
from tidelog.config.checks import (
    check_connection_overrides,
    check_not_empty,
    check_roles,
)
from tidelog.config.group_settings import GROUP_SETTINGS
from tidelog.config.page_settings import PAGE_SETTINGS
from tidelog.config.quota_settings import QUOTA_SETTINGS
from tidelog.config.replication_settings import REPLICATION_SETTINGS
from tidelog.config.security_settings import SECURITY_SETTINGS
from tidelog.config.setting import INT_MAX, LONG_MAX, Update, boolean, integer, items, long, text
from tidelog.config.store_settings import STORE_SETTINGS
from tidelog.config.topic_defaults import TOPIC_DEFAULTS
from tidelog.config.topic_settings import MIB
from tidelog.config.transaction_settings import TRANSACTION_SETTINGS

DEFAULT_REQUEST_POOL_BYTES: Final = 256 * MIB

_IDENTITY: Final = (
    integer(
        "node.id",
        0,
        "The id of this broker, unique in the cluster. Kafka has no default; a single broker does"
        " not need one.",
        minimum=0,
        kafka_default="",
    ),
    integer(
        "broker.id",
        -1,
        "An older name of `node.id`, used if that is not set; -1 counts as not set.",
        minimum=-1,
    ),
    text("broker.rack", None, "The rack of this broker. Clients see it in the metadata."),
    items(
        "process.roles",
        [],
        "The roles of a node in Kafka. A file for a node with the role `broker` is accepted (the"
        " broker contains the controller); a file for a node that is only `controller` is refused.",
        check=check_roles,
        kafka_default="",
    ),
    items(
        "log.dirs",
        None,
        "The directories that hold the data; takes precedence over `log.dir`.",
        check=check_not_empty,
        fallbacks=(("log.dir", 1),),
    ),
    items(
        "log.dir",
        ["tidelog-data"],
        "The directory that holds the data, if `log.dirs` is not set. Kafka's default is lost"
        " when the machine restarts.",
        check=check_not_empty,
        # What the page says of Kafka, not a place that is used.
        kafka_default="/tmp/kafka-logs",  # nosec B108
    ),
)

_LISTENERS: Final = (
    items(
        "listeners",
        ["PLAINTEXT://127.0.0.1:9092"],
        "Where clients connect, as NAME://HOST:PORT. A listener without a host binds to"
        " 127.0.0.1, unlike Kafka, which binds to every interface; set an address for anything"
        " else (0.0.0.0 for all interfaces). A PLAINTEXT listener beyond this machine needs"
        " `allow.plaintext.listeners`. Port 0 selects a free port.",
        check=check_not_empty,
        kafka_default="PLAINTEXT://:9092",
    ),
    items(
        "advertised.listeners",
        None,
        "The addresses that the broker advertises to clients. If not set, each client gets the"
        " address that it connected to.",
        check=check_not_empty,
    ),
    boolean(
        "allow.plaintext.listeners",
        False,
        "Whether a PLAINTEXT listener may be opened beyond this machine, which lets everyone on"
        " the network do everything and read the traffic. Otherwise the broker does not start with"
        " such a listener.",
        kafka=False,
    ),
    text(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name stands for: PLAINTEXT, SSL, SASL_PLAINTEXT or "
        "SASL_SSL.",
    ),
    text(
        "inter.broker.listener.name",
        None,
        "The listener that brokers use among themselves. If not set, the first one whose protocol"
        " is `security.inter.broker.protocol`, or else the first.",
    ),
    items(
        "controller.listener.names",
        [],
        "Listeners of Kafka's controllers. They are not opened, because the controller is part of"
        " the broker.",
        kafka_default="",
    ),
    *PAGE_SETTINGS,
)

_CONNECTIONS: Final = (
    integer(
        "socket.request.max.bytes",
        100 * MIB,
        "The largest accepted request; a larger one closes its connection.",
        minimum=1,
    ),
    long(
        "queued.max.request.bytes",
        DEFAULT_REQUEST_POOL_BYTES,
        "The memory that all requests in progress may use together; while it is used up, the"
        " broker does not read from connections. Kafka sets no limit by default; -1 means"
        " Tidelog's default. Must not be smaller than `socket.request.max.bytes`.",
        minimum=-1,
        kafka_default="-1",
    ),
    integer(
        "connections.max.inflight.requests",
        5000,
        "How many unanswered requests a connection may have before the broker stops reading from"
        " it.",
        minimum=1,
        kafka=False,
    ),
    integer(
        "max.connections",
        INT_MAX,
        "How many connections may be open at once; further ones are closed.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    ),
    integer(
        "max.connections.per.ip",
        INT_MAX,
        "How many connections one address may have.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    ),
    text(
        "max.connections.per.ip.overrides",
        "",
        "Limits for single addresses, as ADDRESS:COUNT separated by commas.",
        check=check_connection_overrides,
        update=Update.CLUSTER_WIDE,
    ),
    integer(
        "max.connections.per.user",
        INT_MAX,
        "How many connections a user that authenticates with SASL may have; the next one is"
        " refused with SASL_AUTHENTICATION_FAILED.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
        kafka=False,
    ),
    long(
        "connections.max.idle.ms",
        600_000,
        "How long a connection may be idle before it is closed; a negative value disables this.",
    ),
    long(
        "connections.first.byte.ms",
        30_000,
        "How long a new connection may take to send its first byte.",
        minimum=1,
        kafka=False,
    ),
    long(
        "connections.frame.timeout.ms",
        30_000,
        "How long a request being received, or an answer being sent, may make no progress before"
        " the connection is closed. A request that arrives at less than 1 KiB a second for this"
        " time closes it too.",
        minimum=1,
        kafka=False,
    ),
    integer(
        "socket.send.buffer.bytes",
        -1,
        "The socket's send buffer; with -1 the operating system adapts it to the connection.",
        minimum=-1,
        kafka_default="102400",
    ),
    integer(
        "socket.receive.buffer.bytes",
        -1,
        "The socket's receive buffer; with -1 the operating system adapts it to the connection.",
        minimum=-1,
        kafka_default="102400",
    ),
    integer(
        "socket.listen.backlog.size", 50, "How many connections may wait to be accepted.", minimum=1
    ),
    integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "How many incremental fetch sessions are kept.",
        minimum=0,
    ),
    integer(
        "fetch.session.partitions.max",
        50_000,
        "The maximum number of partitions in one incremental fetch session. A client that fetches"
        " more gets no session and names all its partitions in every fetch.",
        minimum=0,
        kafka=False,
    ),
    long(
        "fetch.sessions.max.bytes",
        128 * MIB,
        "The memory of all incremental fetch sessions together, at 500 bytes per partition. When"
        " it is used up, a new session replaces one whose partitions cannot be read, one that was"
        " unused for two minutes, or a smaller one; otherwise the client gets no session.",
        minimum=0,
        kafka=False,
    ),
    integer(
        "fetch.max.bytes",
        55 * MIB,
        "The maximum size of the answer to a fetch, whatever it asks for; a single larger batch"
        " is still sent whole.",
        minimum=1024,
    ),
    long(
        "shutdown.drain.ms",
        10_000,
        "How long a stopping broker waits for requests in progress before it closes connections.",
        minimum=0,
        kafka=False,
    ),
)

_TOPICS: Final = (
    integer(
        "num.partitions",
        1,
        "The number of partitions of a topic that is created without a number.",
        minimum=1,
    ),
    integer(
        "default.replication.factor",
        1,
        "The replication factor of a topic that is created without one.",
        minimum=1,
    ),
    boolean(
        "auto.create.topics.enable",
        True,
        "Whether a topic is created when a client asks for one that does not exist.",
    ),
    boolean("delete.topic.enable", True, "Whether topics may be deleted."),
    integer(
        "producer.id.expiration.ms",
        86_400_000,
        "How long a partition remembers an idle producer, to detect duplicates.",
        minimum=1,
        update=Update.CLUSTER_WIDE,
    ),
    long(
        "max.decompressed.batch.bytes",
        -1,
        "The maximum decompressed size of a batch whose records must be inspected. -1: eight"
        " times the topic's `max.message.bytes`, at most 64 MiB, and never less than"
        " `max.message.bytes`.",
        minimum=-1,
        kafka=False,
    ),
)

_STORAGE: Final = (
    long(
        "log.retention.check.interval.ms",
        300_000,
        "How often logs are checked for segments that retention may remove.",
        minimum=1,
    ),
    boolean(
        "log.cleaner.enable", True, "Whether logs with `cleanup.policy=compact` are compacted."
    ),
    long(
        "log.cleaner.backoff.ms",
        15_000,
        "How long the cleaner pauses when no log needs cleaning.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    ),
    long(
        "log.cleaner.dedupe.buffer.size",
        128 * MIB,
        "The memory for the keys of one cleaning pass, allocated as needed. A log with more keys"
        " than fit (about 700,000 with the default) is cleaned in several passes.",
        minimum=MIB,
        update=Update.CLUSTER_WIDE,
    ),
    long(
        "log.scrub.interval.ms",
        24 * 3600 * 1000,
        "How long one pass of the scrub takes, which reads all logs and verifies the checksum of"
        " every batch. Damaged replicas are fetched again from their leaders. 0 turns it off.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
        kafka=False,
    ),
    long(
        "log.scrub.io.max.bytes.per.second",
        16 * MIB,
        "How many bytes the scrub reads a second at most. If there is more data, the pass takes"
        " longer.",
        minimum=1024,
        update=Update.CLUSTER_WIDE,
        kafka=False,
    ),
    long(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        "How often logs are checked for records that `flush.ms` requires to be flushed, and the"
        " value of `log.flush.interval.ms` if that is not set.",
        minimum=1,
    ),
    integer(
        "flusher.interval.ms",
        1000,
        "The target for the maximum age of unflushed data in `durability=replicated` topics: the"
        " background flusher flushes dirty segments, oldest first, to meet it.",
        minimum=1,
        kafka=False,
    ),
    integer(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often the recovery points of the logs are written.",
        minimum=0,
    ),
    integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        "How often the start offsets of the logs are written.",
        minimum=0,
    ),
    long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "How often the high watermarks are written.",
        minimum=1,
    ),
    long(
        "disk.min.free.bytes",
        -1,
        "The free space on a data directory's file system below which producers get a retriable"
        " error while reads and commits continue. Commits are refused in the last 64 MiB, or in"
        " half of this if that is less. -1: 2 GiB or 5 % of the file system, whichever is less.",
        minimum=-1,
        update=Update.CLUSTER_WIDE,
        kafka=False,
    ),
    integer(
        "open.files.max",
        -1,
        "How many segment and index files are kept open. -1: half of the process's limit of open"
        " files.",
        minimum=-1,
        kafka=False,
    ),
    integer(
        "offload.threads",
        4,
        "Threads for work that must not run on the event loop: flushing, unlinking, cold reads,"
        " decompression.",
        minimum=1,
        maximum=64,
        kafka=False,
    ),
)

BROKER_SECTIONS: Final = (
    ("Identity and data", _IDENTITY),
    ("Metadata of a cluster", STORE_SETTINGS),
    ("Listeners", _LISTENERS),
    ("TLS and SASL", SECURITY_SETTINGS),
    ("Connections and requests", _CONNECTIONS),
    ("Quotas and bounds", QUOTA_SETTINGS),
    ("Topics and producers", _TOPICS),
    ("Groups and their offsets", GROUP_SETTINGS),
    ("Transactions", TRANSACTION_SETTINGS),
    ("Replication", REPLICATION_SETTINGS),
    ("Storage", _STORAGE),
    ("Audit log", AUDIT_SETTINGS),
    ("Defaults of topics", TOPIC_DEFAULTS),
)
