"""How many replicas must be in sync before anything is committed: one rule for everybody.

The leader commits nothing while its ISR is smaller than the minimum, and the controller counts on
that when it keeps those who left such an ISR as eligible leaders (ELR). If the two went by
different minimums, committed records would be lost. So both take it from the image alone, which
they see in the same order: what the topic sets, else what is set for all brokers, else the largest
value in the files of all known brokers, as they registered it. Where nothing is set, it is 2 with
three or more replicas, else 1. It is never above the number of replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.cluster.image import BrokerRegistration, ImageView, PartitionState, TopicImage

MIN_ISR: Final = "min.insync.replicas"
UNSET: Final = 0


def min_isr_of(topic_configs: Mapping[str, str], default: int, replication_factor: int) -> int:
    """The minimum of a topic; `default` is `default_min_isr`, and 0 where nothing is set."""
    value = int(topic_configs.get(MIN_ISR, default))
    if value == UNSET:
        value = 2 if replication_factor >= 3 else 1
    return min(value, replication_factor)


def default_min_isr(image: ImageView, newest: BrokerRegistration | None = None) -> int:
    """What holds for topics that set nothing themselves; 0 where nobody set anything.

    `newest` stands for what the image knows of the same broker.
    """
    altered = image.broker_configs.get("", {}).get(MIN_ISR)
    return file_min_isr(image, newest) if altered is None else int(altered)


def file_min_isr(image: ImageView, newest: BrokerRegistration | None = None) -> int:
    """The largest value in the files of the known brokers; 0 where it is in none."""
    known = {**image.absent, **image.brokers}
    if newest is not None:
        known[newest.id] = newest
    return max((each.min_isr for each in known.values()), default=UNSET)


def min_isr_in(image: ImageView, topic: TopicImage, state: PartitionState) -> int:
    """The minimum of one partition."""
    return min_isr_of(topic.configs, default_min_isr(image), state.replication_factor)
