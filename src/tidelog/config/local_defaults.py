"""What brokers for one person are started with, unless told otherwise: `tidelog up`, tests."""

from typing import Final

LOCAL_DEFAULTS: Final = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
