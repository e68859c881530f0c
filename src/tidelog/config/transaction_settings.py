"""The settings of transactions."""

from __future__ import annotations

from typing import Final

from tidelog.config.setting import boolean, integer, short

TRANSACTION_SETTINGS: Final = (
    integer(
        "transaction.max.timeout.ms",
        900_000,
        "The longest time-out that a producer may ask for. A transaction that is open for longer "
        "than its time-out is aborted.",
        minimum=1,
    ),
    boolean(
        "transaction.two.phase.commit.enable",
        True,
        "Whether producers may leave a transaction open that no time-out ends (KIP-939), so that "
        "another process can decide about it. Only clients of Tidelog can ask for it; the Spark "
        "sink does, for writes that are exactly once.",
    ),
    integer(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long a transactional id that nobody uses is remembered.",
        minimum=1,
    ),
    integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often transactional ids are looked through for those that have expired.",
        minimum=1,
    ),
    integer(
        "transaction.state.log.num.partitions",
        50,
        "Partitions of `__transaction_state`; counts when the topic is created, by the first "
        "transactional id.",
        minimum=1,
    ),
    short(
        "transaction.state.log.replication.factor",
        3,
        "Replicas of `__transaction_state`; where there are fewer brokers, that many.",
        minimum=1,
    ),
    integer(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "Size of the segments of `__transaction_state`.",
        minimum=1,
    ),
)
