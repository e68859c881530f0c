"""The settings of replication between brokers."""

from __future__ import annotations

from typing import Final

from tidelog.config.setting import LONG_MAX, Update, boolean, integer, long, text
from tidelog.config.topic_settings import MIB

REPLICATION_SETTINGS: Final = (
    integer(
        "replica.fetch.wait.max.ms",
        500,
        "How long a leader holds a follower's fetch that finds nothing new.",
        minimum=0,
    ),
    integer(
        "replica.fetch.min.bytes",
        1,
        "How many bytes a leader gathers before it answers a follower's fetch, unless the time of "
        "`replica.fetch.wait.max.ms` is up.",
        minimum=0,
    ),
    integer(
        "replica.fetch.max.bytes",
        4 * MIB,
        "How many bytes a follower takes of one partition in one answer. A single batch that is "
        "larger is taken all the same. More than Kafka's default: a follower that falls behind "
        "by a few large batches takes them together, for a fifth less of all brokers' CPU time.",
        minimum=0,
        kafka_default="1048576",
    ),
    integer(
        "replica.fetch.response.max.bytes",
        10 * MIB,
        "How many bytes a follower takes in one answer. A single batch that is larger is taken "
        "all the same.",
        minimum=0,
    ),
    integer(
        "replica.fetch.backoff.ms",
        1000,
        "How long a follower leaves a partition alone whose fetch failed. The first waits are "
        "shorter and double up to this.",
        minimum=0,
    ),
    integer(
        "replica.socket.timeout.ms",
        30_000,
        "How long a follower waits for an answer, beyond `replica.fetch.wait.max.ms`, before it "
        "connects again.",
        minimum=1,
    ),
    text(
        "replica.selector.class",
        None,
        "Where consumers that name their rack (`client.rack`) read: a replica in that rack, if one "
        "is in sync. This is so where nothing is set, too, unlike in Kafka; `leader` sends all of "
        "them to the leader.",
        choices=("org.apache.kafka.common.replica.RackAwareReplicaSelector", "leader"),
    ),
    long(
        "replica.lag.time.max.ms",
        30_000,
        "How long a follower may be behind its leader before it leaves the in-sync replicas.",
        minimum=1,
    ),
    long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "How many bytes a second this broker gives to followers that are not in sync, of the "
        "partitions listed in `leader.replication.throttled.replicas`.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
        shown_unset=False,
    ),
    long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "How many bytes a second this broker copies of partitions listed in "
        "`follower.replication.throttled.replicas`, while it is not in sync with their leaders.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
        shown_unset=False,
    ),
    boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether preferred replicas lead again once they are back in sync.",
    ),
    long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller looks for partitions that their preferred replica could lead.",
        minimum=1,
    ),
)
