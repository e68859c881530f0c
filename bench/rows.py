"""The table of what is measured: one `Row` for each line of the report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

KB = 1_000
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """One load, run in turn against every peer.

    `kind` says what is held against what: "throughput" (records/s and CPU per GB), "latency" (p50
    and p99), "requests" (requests per second, and per CPU second), "limit" (MB/s beside a bare
    loop), "compressed" (CPU per GB and p99), "transactions" (per second, CPU, and p50 and p99 of
    a commit; "transactions-synced" the same, held against nothing), "in-transactions" (what they
    cost), "transactional-ids" (seconds), the first two with "cluster-" before them (of three
    brokers), "start", "in-process", "groups" and "offsets" (seconds, memory), "spark-read",
    "spark-write" (rows/s and CPU per million, beside Spark's connector), "spark-stream" (times
    of a live stream), "tls" (as "throughput", held against all of Kafka's rate), "logins" (per
    second, and CPU), "acls" (what rules cost) and "quota" (how near a throttled client stays, and
    the times of another). `amount` names the argument that a quick run divides.
    """

    key: str
    title: str
    kind: str
    load: str
    arguments: dict[str, Any] = field(default_factory=dict)
    amount: str = "records"
    quick_divisor: int = 5
    partitions: int = 1
    filled: bool = False  # the topic is filled once before the rounds, for consuming
    bare: tuple[str, ...] = ()  # also run against these: "bare" (a loop in C), "uvloop"
    settings: dict[str, str] = field(default_factory=dict)  # of brokers started for this row alone
    rounds_max: int = 1_000
    brokers: int = 1  # above 1 the row is of a cluster
    listener: str = "PLAINTEXT"  # another one: of brokers that have it beside the open one

    def sized(self, quick: bool) -> dict[str, Any]:
        arguments = dict(self.arguments)
        if quick and self.amount in arguments:
            size = arguments[self.amount] / self.quick_divisor
            arguments[self.amount] = type(arguments[self.amount])(size)
        return arguments


def _produce(key: str, title: str, records: int, record_bytes: int) -> Row:
    sizes = {"records": records, "record_bytes": record_bytes, "partitions": 1}
    return Row(key, title, "throughput", "librdkafka.produce", sizes, bare=("bare",))


def _java(key: str, title: str, records: int, record_bytes: int) -> Row:
    sizes = {"records": records, "record_bytes": record_bytes}
    return Row(key, title, "throughput", "java.produce", sizes, bare=("bare",))


def _consume(client: str, key: str, title: str, records: int, record_bytes: int) -> Row:
    sizes = {"records": records, "record_bytes": record_bytes, "partitions": 4}
    load = f"{client}.consume"
    return Row(key, title, "throughput", load, sizes, partitions=4, filled=True)


def _synchronous(acks: str) -> Row:
    sizes = {"records": 5_000, "record_bytes": 100, "acks": acks}
    title = f"One record at a time, librdkafka, 100 B, acks={acks}"
    key, load = f"synchronous-{acks}", "librdkafka.synchronous"
    return Row(key, title, "latency", load, sizes, bare=("bare", "uvloop"))


def _requests(kind: str, connections: int) -> Row:
    sizes = {"kind": kind, "connections": connections, "duration_s": 1.5}
    plural = "connection" if connections == 1 else "connections"
    title = f"Small {kind} requests, {connections:,} {plural}, one in flight each"
    key, load = f"requests-{kind}-{connections}", "raw.small_requests"
    return Row(
        key,
        title,
        "requests",
        load,
        sizes,
        amount="duration_s",
        quick_divisor=2,
        bare=("uvloop",),
    )


def _limit(batch_bytes: int, name: str) -> Row:
    sizes = {"batch_bytes": batch_bytes, "total_bytes": 500 * MB, "in_flight": 5}
    title = f"Prebuilt {name} batches on one connection, five in flight, acks=all"
    key, load = f"limit-{name.replace(' ', '-').lower()}", "raw.pipelined_produce"
    return Row(key, title, "limit", load, sizes, amount="total_bytes", bare=("bare",))


def _compressed(codec: str, batch_bytes: int, name: str) -> Row:
    sizes = {"codec": codec, "batch_bytes": batch_bytes, "total_bytes": 200 * MB}
    title = f"Batches of {name} of JSON events, {codec}, five in flight; p99 of one at a time"
    key, load = f"compressed-{codec}-{name.replace(' ', '').lower()}", "raw.compressed_produce"
    return Row(key, title, "compressed", load, sizes, amount="total_bytes")


def _groups(groups: int, members: int, *, commits: bool) -> Row:
    sizes = {
        "groups": groups, "members": members, "partitions": members, "hold_s": 21.0,
        "commits": commits,
    }  # fmt: skip
    title = f"{groups * members:,} members in {groups:,} groups, each on a connection of its own"
    key, kind = ("groups-commits", "groups-commits") if commits else ("groups-members", "groups")
    title += ", and each commits every 5 s" if commits else ""
    # Descriptors are for connections here; Kafka knows no such setting and leaves it alone.
    settings = {"group.initial.rebalance.delay.ms": "3000", "open.files.max": "500"}
    return Row(
        key,
        title,
        kind,
        "groups.hold",
        sizes,
        amount="groups",
        partitions=members,
        settings=settings,
        rounds_max=3,
    )


def _offsets(groups: int, partitions: int) -> Row:
    title = f"{groups * partitions:,} committed offsets of {groups:,} groups after SIGKILL"
    sizes = {"groups": groups, "partitions": partitions}
    return Row(
        "groups-offsets",
        title,
        "offsets",
        "groups.commit",
        sizes,
        amount="groups",
        settings={"num.partitions": str(partitions)},
        rounds_max=3,
    )


def _spark(direction: str, records: int, record_bytes: int, name: str) -> Row:
    sizes = {"direction": direction, "records": records, "record_bytes": record_bytes}
    title = f"Spark {direction}, local[2], {name}, {_PARTS}: our source, and the connector"
    key = f"spark-{direction}-{name.replace(' ', '').lower()}"
    return Row(key, title, f"spark-{direction}", "spark.compare", sizes, partitions=4)


def _transactions(client: str, records: int, *, synced: bool = False, brokers: int = 1) -> Row:
    """Transactions by one client, one after another; `synced`: each step is on the disk first."""
    sizes: dict[str, Any] = {"transactions": 600, "records": records}
    if brokers == 1:
        sizes["durability"] = "fsync" if synced else "replicated"
    name = "of one record" if records == 1 else f"of {records:,} records"
    title = f"Transactions {name}, {'Java 4.3' if client == 'java' else client}"
    title = f"Three brokers, three replicas: {title}" if brokers > 1 else title
    title += ", each step on the disk first" if synced else ""
    kind = "transactions-synced" if synced else "transactions"
    prefix = "cluster-" if brokers > 1 else "synced-" if synced else ""
    return Row(
        f"{prefix}transactions-{client}-{records}",
        title,
        kind,
        f"transactions.{client}",
        sizes,
        amount="transactions",
        brokers=brokers,
    )


def _replicated(row: Row) -> Row:
    """The same load on three brokers."""
    title = f"Three brokers, three replicas: {row.title}"
    kind = f"cluster-{row.kind}"
    return replace(row, key=f"cluster-{row.key}", title=title, kind=kind, bare=(), brokers=3)


def _over_tls(row: Row) -> Row:
    """The same load through a listener that speaks TLS 1.3."""
    title = f"Over TLS 1.3: {row.title}"
    return replace(row, key=f"tls-{row.key}", title=title, kind="tls", bare=(), listener="SSL")


def _brokers(brokers: int, partitions: int) -> Row:
    plural = "broker" if brokers == 1 else "brokers"
    topic = f"a topic of {partitions} partitions" if partitions > 1 else "a topic of one partition"
    title = f"{brokers} {plural} on this machine, one replica, {topic}: 1 MB batches, acks=all"
    sizes = {"partitions": partitions, "total_bytes": 1_000 * MB}
    key, load = f"brokers-{brokers}-{partitions}", "spread.produce"
    return Row(
        key,
        title,
        "brokers",
        load,
        sizes,
        amount="total_bytes",
        partitions=partitions,
        brokers=brokers,
        rounds_max=3,
    )


_BATCHES = "acks=all, batches to 1 MB"
_PARTS = "4 partitions"
_JAVA_BATCHES = "64 KB batches, linger 5 ms"

ROWS: tuple[Row, ...] = (
    Row("start", "Process start to first acknowledged record", "start", ""),
    Row("in-process", "In-process Broker(), warm interpreter", "in-process", "in_process.start"),
    _groups(1_000, 10, commits=False),
    _groups(1_000, 10, commits=True),
    _offsets(1_000, 100),
    _produce("produce-1k", f"Produce, librdkafka, 1 KB, {_BATCHES}", 1_000_000, KB),
    _produce("produce-100", f"Produce, librdkafka, 100 B, {_BATCHES}", 2_000_000, 100),
    _java("java-1k", f"Produce, Java, 1 KB, {_JAVA_BATCHES}", 300_000, KB),
    _java("java-100", f"Produce, Java, 100 B, {_JAVA_BATCHES}", 1_200_000, 100),
    _consume("librdkafka", "consume-1k", f"Consume, librdkafka, 1 KB, {_PARTS}", 1_000_000, KB),
    _consume("librdkafka", "consume-100", f"Consume, librdkafka, 100 B, {_PARTS}", 2_000_000, 100),
    _consume("java", "java-consume-1k", f"Consume, Java, 1 KB, {_PARTS}", 1_000_000, KB),
    _synchronous("1"),
    _synchronous("all"),
    *(_requests(kind, count) for kind in ("produce", "metadata") for count in (1, 1_000)),
    _limit(65_536, "64 KiB"),
    _limit(1_000_000, "1 MB"),
    *(
        _compressed(codec, size, name)
        for codec in ("gzip", "snappy", "lz4", "zstd")
        for size, name in ((16 * KB, "16 KB"), (500 * KB, "500 KB"))
    ),
    _replicated(_produce("produce-1k", f"Produce, librdkafka, 1 KB, {_BATCHES}", 500_000, KB)),
    replace(
        _replicated(_java("java-1k", f"Produce, Java, 1 KB, {_JAVA_BATCHES}", 200_000, KB)),
        kind="cluster-batches",
    ),
    replace(_replicated(_synchronous("all")), quick_divisor=2),
    *(
        _transactions("java", records, synced=synced)
        for synced in (False, True)
        for records in (1, 1_000)
    ),
    _transactions("librdkafka", 1),
    Row(
        "in-transactions-1k",
        f"Produce, Java, 1 KB, {_JAVA_BATCHES}, in transactions of 1 s",
        "in-transactions",
        "java.in_transactions",
        {"records": 600_000, "record_bytes": KB},
    ),
    Row(
        "transactional-ids",
        "100,000 transactional ids after SIGKILL",
        "transactional-ids",
        "",
        {"ids": 100_000},
        amount="ids",
        rounds_max=3,
    ),
    *(_transactions("java", records, brokers=3) for records in (1, 1_000)),
    _transactions("librdkafka", 1, brokers=3),
    Row(
        "catch-up",
        "A record to a waiting reader, while another reads 300 MB that only the disk has",
        "catch-up",
        "cold.tail",
        {"total_bytes": 300 * MB, "seconds": 4.0},
        amount="total_bytes",
    ),
    _brokers(1, 1),
    _brokers(1, 4),
    _brokers(2, 4),
    _brokers(4, 4),
    _brokers(4, 1),
    Row(
        "idle-replicas",
        "Three brokers with 3,000 idle replicas each: the busiest broker",
        "idle-replicas",
        "",
        {"replicas": 3_000, "seconds": 20.0},
        amount="replicas",
    ),
    _over_tls(_produce("produce-1k", f"Produce, librdkafka, 1 KB, {_BATCHES}", 500_000, KB)),
    _over_tls(
        _consume("librdkafka", "consume-1k", f"Consume, librdkafka, 1 KB, {_PARTS}", 500_000, KB)
    ),
    Row(
        "scram-logins",
        "Log-ins by SCRAM-SHA-256 with 4,096 iterations, 32 at once, each on a new connection",
        "logins",
        "logins.scram",
        {"at_once": 32, "duration_s": 4.0},
        amount="duration_s",
        listener="SASL_PLAINTEXT",
    ),
    Row(
        "acls",
        "Small produce requests of one user, 1,000 connections, with and without rules",
        "acls",
        "acls.by_turns",
        {"connections": 1_000, "duration_s": 10.0, "turns": 40},
        amount="duration_s",
    ),
    Row(
        "quotas",
        "A producer and a consumer held at 5 MB/s each, and a client beside them",
        "quota",
        "quotas.held",
        {"quota_bytes": 5.0 * MB, "seconds": 22.0},
        amount="seconds",
        rounds_max=3,
    ),
    _spark("read", 5_000_000, 100, "100 B"),
    _spark("read", 1_500_000, KB, "1 KB"),
    _spark("write", 2_000_000, 100, "100 B"),
    _spark("write", 500_000, KB, "1 KB"),
    Row(
        "spark-stream",
        "Spark stream, topic to topic, 200 records/s: micro-batch, and end to end",
        "spark-stream",
        "spark.stream",
        {"seconds": 30.0},
        amount="seconds",
        quick_divisor=2,
        rounds_max=3,
    ),
)
