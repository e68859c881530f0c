"""The settings of client quotas; the quotas themselves are metadata."""

from __future__ import annotations

from typing import Final

from tidelog.config.setting import integer

QUOTA_SETTINGS: Final = (
    integer(
        "quota.window.num",
        11,
        "Over how many windows the rate of a client is taken. A client that was quiet may use all "
        "of them but one at once.",
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
)
