"""The settings of replication between brokers."""

from __future__ import annotations

from typing import Final

from tidelog.config.setting import LONG_MAX, Update, boolean, integer, long, text
from tidelog.config.topic_settings import MIB

REPLICATION_SETTINGS: Final = (
    integer(
        "replica.fetch.wait.max.ms",
        500,
        "How long a leader holds a follower's fetch if there is nothing new.",
        minimum=0,
    ),
    integer(
        "replica.fetch.min.bytes",
        1,
        "How many bytes a leader gathers before it answers a follower's fetch, for up to"
        " `replica.fetch.wait.max.ms`.",
        minimum=0,
    ),
    integer(
        "replica.fetch.max.bytes",
        4 * MIB,
        "How many bytes of one partition a follower fetches at once. A single larger batch is"
        " still fetched. The default is above Kafka's: a follower that is a few large batches"
        " behind fetches them together, which saves a fifth of all brokers' CPU time.",
        minimum=0,
        kafka_default="1048576",
    ),
    integer(
        "replica.fetch.response.max.bytes",
        10 * MIB,
        "How many bytes a follower fetches at once. A single larger batch is still fetched.",
        minimum=0,
    ),
    integer(
        "replica.fetch.backoff.ms",
        1000,
        "How long a follower waits after a failed fetch of a partition. The first waits are"
        " shorter and double up to this.",
        minimum=0,
    ),
    integer(
        "replica.socket.timeout.ms",
        30_000,
        "How long a follower waits for an answer, beyond `replica.fetch.wait.max.ms`, before it"
        " reconnects.",
        minimum=1,
    ),
    text(
        "replica.selector.class",
        None,
        "Where consumers with a `client.rack` read: from an in-sync replica in that rack, if"
        " there is one. Unlike in Kafka, this is the default; `leader` makes all of them read from"
        " the leader.",
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
        "How many bytes a second this broker sends to followers that are not in sync, for the"
        " partitions listed in `leader.replication.throttled.replicas`.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
        shown_unset=False,
    ),
    long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "How many bytes a second this broker copies of partitions listed in"
        " `follower.replication.throttled.replicas`, while it is not in sync with their leaders.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
        shown_unset=False,
    ),
    boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether preferred replicas become leaders again once they are back in sync.",
    ),
    long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller looks for partitions whose preferred replica could lead.",
        minimum=1,
    ),
)
