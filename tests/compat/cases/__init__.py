"""Every case of the matrix, in the order of the table."""

from tests.compat.cases import (
    configs,
    consume,
    group_admin,
    group_consumer_protocol,
    group_members,
    group_offsets,
    produce,
    topics,
)
from tests.compat.cases.registry import CASES, Case, Trial

SECTIONS = (
    topics.SECTION,
    configs.SECTION,
    produce.SECTION,
    consume.SECTION,
    group_members.SECTION,
    group_offsets.SECTION,
    group_admin.SECTION,
    group_consumer_protocol.SECTION,
)

__all__ = ["CASES", "SECTIONS", "Case", "Trial"]
