"""Every option that Spark's Kafka connector has for reading, and those that only we have."""

from __future__ import annotations

from tidelog.spark.option_row import CLIENT_ROWS, NO_EFFECT, SECURITY_ROWS, OptionRow

_CONNECTOR_TOO = "the connector refuses it too: "

READ_OPTIONS: tuple[OptionRow, ...] = (
    OptionRow(
        "kafka.bootstrap.servers",
        "differs",
        "bootstrap brokers, HOST:PORT, separated by commas; defaults to TIDELOG_BOOTSTRAP_SERVERS "
        "in the driver's environment",
    ),
    OptionRow("subscribe", "same", "topics, separated by commas"),
    OptionRow(
        "subscribePattern",
        "differs",
        "a pattern that matches anywhere in a topic's name, as there; in Python's syntax, which"
        " differs from Java's only in rare cases",
    ),
    OptionRow("assign", "same", 'partitions as JSON, {"topic": [0, 1]}'),
    OptionRow(
        "startingOffsets",
        "differs",
        'earliest, latest or {"topic": {"0": 23, "1": -2}} as there; also `group:NAME`, the'
        " committed offsets of that group, or earliest if it has none",
    ),
    OptionRow(
        "startingTimestamp", "same", ("the first record at or after this time, in ms since 1970")
    ),
    OptionRow("startingOffsetsByTimestamp", "same", 'times per partition, {"topic": {"0": 1000}}'),
    OptionRow(
        "startingOffsetsByTimestampStrategy",
        "same",
        "`error` (default) or `latest`, for a time after the last record",
    ),
    OptionRow("endingOffsets", "same", "batch only; latest or JSON"),
    OptionRow("endingTimestamp", "same", "batch only; the end of the log after the last record"),
    OptionRow("endingOffsetsByTimestamp", "same", "batch only; times per partition"),
    OptionRow(
        "failOnDataLoss",
        "differs",
        "true (default): stop; false: log and continue. Distinguishes retention, a topic created"
        " again (by its id) and truncation; compaction gaps and transaction markers are no loss",
    ),
    OptionRow("kafkaConsumer.pollTimeoutMs", "same", "how long a task waits without progress"),
    OptionRow(
        "fetchOffset.numRetries",
        "differs",
        NO_EFFECT + "offset requests are retried until kafka.default.api.timeout.ms is over",
    ),
    OptionRow("fetchOffset.retryIntervalMs", "differs", NO_EFFECT + "see kafka.retry.backoff.ms"),
    OptionRow(
        "maxOffsetsPerTrigger",
        "same",
        ("maximum rows of a micro-batch, distributed by partition size"),
    ),
    OptionRow("minOffsetsPerTrigger", "same", "a micro-batch waits for this many rows"),
    OptionRow("maxTriggerDelay", "same", "but not longer than this (15m)"),
    OptionRow("minPartitions", "same", "at least this many tasks; large partitions are split"),
    OptionRow("maxRecordsPerPartition", "same", "maximum rows of a task"),
    OptionRow("includeHeaders", "same", "adds the column headers"),
    OptionRow(
        "groupIdPrefix",
        "differs",
        "prefix of the group name of a query without kafka.group.id; a random part that stays"
        " with the checkpoint follows (tidelog-spark)",
    ),
    OptionRow(
        "kafka.group.id",
        "differs",
        "the group whose offsets a stream commits, so that you can see its lag; nobody joins it",
    ),
    OptionRow("kafka.isolation.level", "same", "read_uncommitted (default) or read_committed"),
    OptionRow("kafka.client.id", "same", "the name of the query in the broker's log"),
    OptionRow("kafka.fetch.max.bytes", "differs", "32 MiB by default instead of 50"),
    OptionRow("kafka.max.partition.fetch.bytes", "differs", "4 MiB by default instead of 1"),
    OptionRow("kafka.fetch.max.wait.ms", "same", "how long a fetch waits at the end of a log"),
    OptionRow("kafka.fetch.min.bytes", "differs", NO_EFFECT + "planned records already exist"),
    OptionRow("kafka.check.crcs", "same", "true by default"),
    OptionRow("kafka.request.timeout.ms", "same", "30,000"),
    OptionRow("kafka.default.api.timeout.ms", "same", "60,000; how long to retry"),
    OptionRow("kafka.retry.backoff.ms", "differs", "50 by default, doubling"),
    OptionRow("kafka.retry.backoff.max.ms", "same", "1,000"),
    OptionRow("kafka.socket.connection.setup.timeout.ms", "same", "10,000"),
    OptionRow(
        "kafka.metadata.max.age.ms", "differs", "1,000 by default: how soon a partition is noticed"
    ),
    OptionRow("kafka.session.timeout.ms", "differs", NO_EFFECT + "no group is joined"),
    OptionRow("kafka.heartbeat.interval.ms", "differs", NO_EFFECT + "no group is joined"),
    OptionRow(
        "kafka.max.poll.records", "differs", NO_EFFECT + ("batches are decoded as they arrive")
    ),
    OptionRow("kafka.max.poll.interval.ms", "differs", NO_EFFECT + "no group is joined"),
    OptionRow("kafka.reconnect.backoff.ms", "differs", NO_EFFECT + "see kafka.retry.backoff.ms"),
    OptionRow(
        "kafka.reconnect.backoff.max.ms", "differs", NO_EFFECT + "see kafka.retry.backoff.max.ms"
    ),
    OptionRow("kafka.connections.max.idle.ms", "differs", NO_EFFECT + "the broker closes them"),
    OptionRow("kafka.client.rack", "differs", NO_EFFECT + "tasks read from leaders"),
    OptionRow("kafka.client.dns.lookup", "differs", NO_EFFECT + "every address is tried"),
    OptionRow("kafka.allow.auto.create.topics", "differs", NO_EFFECT + "reading creates no topic"),
    OptionRow("kafka.exclude.internal.topics", "differs", NO_EFFECT + "patterns never match them"),
    *(
        OptionRow(f"kafka.{name}", "differs", NO_EFFECT + reason)
        for name, reason in (
            ("auto.commit.interval.ms", "batches decide on commits"),
            ("group.protocol", "no group is joined"),
            ("group.remote.assignor", "no group is joined"),
        )
    ),
    *CLIENT_ROWS,
    OptionRow("kafka.auto.offset.reset", "refused", _CONNECTOR_TOO + "use startingOffsets"),
    OptionRow("kafka.key.deserializer", "refused", _CONNECTOR_TOO + "keys come as binary"),
    OptionRow("kafka.value.deserializer", "refused", _CONNECTOR_TOO + "values come as binary"),
    OptionRow("kafka.enable.auto.commit", "refused", _CONNECTOR_TOO + "batches decide on commits"),
    OptionRow("kafka.interceptor.classes", "refused", _CONNECTOR_TOO + "classes of Java"),
    OptionRow("kafka.group.instance.id", "refused", "no group is joined"),
    OptionRow("kafka.partition.assignment.strategy", "refused", "no group is joined"),
    OptionRow("kafka.share.acknowledgement.mode", "refused", "a share group cannot be read"),
    OptionRow("kafka.share.acquire.mode", "refused", "a share group cannot be read"),
    OptionRow("kafka.config.providers", "refused", "Java's; read secrets before options are set"),
    OptionRow("kafka.security.providers", "refused", "Java's, for TLS and SASL"),
    *SECURITY_ROWS,
    OptionRow("path", "refused", "a topic is named by the option subscribe"),
    OptionRow(
        "value.*",
        "refused",
        "values are binary; decode them after the source, in the JVM:"
        " `tidelog.spark.decode(records, SCHEMA)`",
    ),
    OptionRow(
        "maxBytesPerTrigger",
        "ours",
        "maximum bytes of a micro-batch, such as 64m; 256m if neither this nor"
        " maxOffsetsPerTrigger is set",
    ),
    OptionRow(
        "maxDecompressedBytes", "ours", "maximum decompressed size of one stored batch (256m)"
    ),
)
