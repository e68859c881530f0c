"""How many replicas must be in sync: one rule, from the image alone."""

from __future__ import annotations

import pytest

from tests.unit.cluster.helpers import ENDPOINTS
from tidelog.cluster.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from tidelog.cluster.min_isr import MIN_ISR, default_min_isr, min_isr_in, min_isr_of
from tidelog.model import NO_TOPIC_ID


@pytest.mark.parametrize(
    ("topic", "default", "replicas", "expected"),
    [
        (None, 0, 1, 1),
        (None, 0, 2, 1),
        (None, 0, 3, 2),
        (None, 0, 5, 2),
        (None, 1, 3, 1),
        (None, 3, 3, 3),
        (None, 3, 2, 2),
        ("1", 3, 3, 1),
        ("9", 0, 3, 3),
    ],
)
def test_the_topic_comes_before_the_default_and_nothing_above_the_replicas(
    topic: str | None, default: int, replicas: int, expected: int
) -> None:
    configs = {} if topic is None else {MIN_ISR: topic}
    assert min_isr_of(configs, default, replicas) == expected


def test_what_is_set_for_all_brokers_comes_before_their_files() -> None:
    here = BrokerRegistration(1, 1, None, ENDPOINTS, min_isr=2)
    gone = BrokerRegistration(2, 1, None, ENDPOINTS, min_isr=3)
    image = MetadataImage(brokers={1: here}, absent={2: gone})
    assert default_min_isr(MetadataImage()) == 0
    assert default_min_isr(image) == 3
    altered = MetadataImage(brokers={1: here}, broker_configs={"": {MIN_ISR: "1"}})
    assert default_min_isr(altered) == 1


def test_replicas_on_their_way_do_not_raise_the_minimum() -> None:
    moving = PartitionState(0, 1, 0, (1, 2, 3), (1,), adding=(2, 3))
    topic = TopicImage("t", NO_TOPIC_ID, (moving,), {})
    assert min_isr_in(MetadataImage(), topic, moving) == 1
    arrived = moving._replace(adding=())
    assert min_isr_in(MetadataImage(), topic, arrived) == 2
