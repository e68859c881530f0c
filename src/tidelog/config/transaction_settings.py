"""The settings of transactions."""

from __future__ import annotations

from typing import Final

from tidelog.config.setting import boolean, integer, short

TRANSACTION_SETTINGS: Final = (
    integer(
        "transaction.max.timeout.ms",
        900_000,
        "The longest timeout that a producer may ask for. A transaction that is open for longer"
        " than its timeout is aborted.",
        minimum=1,
    ),
    boolean(
        "transaction.two.phase.commit.enable",
        True,
        "Whether producers may leave a transaction open without a timeout (KIP-939), so that"
        " another process can decide it. Only Tidelog's own clients can ask for this; the Spark"
        " sink does, for exactly-once writes.",
    ),
    integer(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long an unused transactional id is kept.",
        minimum=1,
    ),
    integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often expired transactional ids are removed.",
        minimum=1,
    ),
    integer(
        "transaction.state.log.num.partitions",
        50,
        "Partitions of `__transaction_state`; applies when the first transactional id creates the"
        " topic.",
        minimum=1,
    ),
    short(
        "transaction.state.log.replication.factor",
        3,
        "Replicas of `__transaction_state`, or the number of brokers if that is less.",
        minimum=1,
    ),
    integer(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "Size of the segments of `__transaction_state`.",
        minimum=1,
    ),
)
