"""Settings: one table, read from files, environment and flags, resolved per topic."""

from tidelog.config.broker_config import BrokerConfig, Source
from tidelog.config.describe import (
    DescribedSetting,
    Synonym,
    describe_broker,
    describe_group,
    describe_topic,
)
from tidelog.config.listeners import Listener, Listeners
from tidelog.config.loader import load
from tidelog.config.overrides import (
    validate_broker_overrides,
    validate_group_overrides,
)
from tidelog.config.topic_config import TopicConfig, topic_config

__all__ = [
    "BrokerConfig",
    "DescribedSetting",
    "Listener",
    "Listeners",
    "Source",
    "Synonym",
    "TopicConfig",
    "describe_broker",
    "describe_group",
    "describe_topic",
    "load",
    "topic_config",
    "validate_broker_overrides",
    "validate_group_overrides",
]
