"""Settings: one table, read from files, environment and flags, resolved per topic."""

from tidelog.config.broker_config import BrokerConfig, Source, validate_broker_overrides
from tidelog.config.listeners import Listener, Listeners
from tidelog.config.loader import load
from tidelog.config.topic_config import TopicConfig, topic_config, validate_topic_overrides

__all__ = [
    "BrokerConfig",
    "Listener",
    "Listeners",
    "Source",
    "TopicConfig",
    "load",
    "topic_config",
    "validate_broker_overrides",
    "validate_topic_overrides",
]
