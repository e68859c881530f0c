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
    transactions,
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
    transactions.SECTION,
)

# What every run tries with three brokers: a request to the controller, to leaders, to coordinators.
SAMPLE = (
    "create_topic",
    "describe_topic",
    "delete_records",
    "produce_idempotent",
    "consume_all_partitions",
    "group_take_over",
    "list_offsets_of_several_groups",
    "transaction_offsets",
)

__all__ = ["CASES", "SAMPLE", "SECTIONS", "Case", "Trial"]
