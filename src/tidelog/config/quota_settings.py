"""The settings of client quotas; the quotas themselves are metadata."""

from __future__ import annotations

from typing import Final

from tidelog.config.setting import integer

QUOTA_SETTINGS: Final = (
    integer(
        "quota.window.num",
        11,
        "Over how many windows a client's rate is measured. A client that was quiet may use all"
        " of them but one at once.",
        minimum=1,
        maximum=1000,
    ),
    integer(
        "quota.window.size.seconds",
        1,
        "How long each of these windows is. No request waits longer than this for a quota of time.",
        minimum=1,
        maximum=3600,
    ),
    integer(
        "controller.quota.window.num",
        11,
        "For how many windows a client may save up partitions to create and delete.",
        minimum=1,
        maximum=1000,
    ),
    integer(
        "controller.quota.window.size.seconds",
        1,
        "How long each of these windows is.",
        minimum=1,
        maximum=3600,
    ),
    integer(
        "cluster.topics.max",
        100_000,
        "How many topics the cluster may have; more are refused with POLICY_VIOLATION.",
        minimum=1,
        kafka=False,
    ),
    integer(
        "cluster.partitions.max",
        200_000,
        "How many partitions the cluster may have; more are refused with POLICY_VIOLATION.",
        minimum=1,
        kafka=False,
    ),
    integer(
        "groups.max.per.partition",
        20_000,
        "How many groups one partition of `__consumer_offsets` may have. The first member or "
        "offset of another is refused with GROUP_MAX_SIZE_REACHED.",
        minimum=1,
        kafka=False,
    ),
    integer(
        "groups.max.per.user",
        10_000,
        "How many groups an authenticated user may create in one partition of"
        " `__consumer_offsets`. The first member or offset of another is refused with"
        " GROUP_MAX_SIZE_REACHED. A coordinator counts from its start.",
        minimum=1,
        kafka=False,
    ),
    integer(
        "transactional.ids.max.per.partition",
        100_000,
        "How many transactional ids one partition of `__transaction_state` may have; new ones are "
        "refused with POLICY_VIOLATION until others expire.",
        minimum=1,
        kafka=False,
    ),
    integer(
        "transactional.ids.max.per.user",
        50_000,
        "How many transactional ids an authenticated user may create in one partition of"
        " `__transaction_state`; new ones are refused with POLICY_VIOLATION until others expire. A"
        " coordinator counts from its start.",
        minimum=1,
        kafka=False,
    ),
    integer(
        "producer.ids.max.per.partition",
        100_000,
        "How many idempotent producers a partition remembers; records of new ones are refused"
        " with POLICY_VIOLATION until others expire.",
        minimum=1,
        kafka=False,
    ),
)
