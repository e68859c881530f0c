"""Operational metrics: samples to windows of a minute in a topic, and of an hour in a table."""

from examples.pipelines.example import Example
from examples.pipelines.metrics.generate import TOPIC, generate
from examples.pipelines.metrics.truth import truth
from examples.pipelines.targets import DeadLetters, Delta, Records

EXAMPLE = Example(
    topics={TOPIC: 3},
    targets={
        "minutes": Records("metrics.minutes"),
        "hours": Delta("lake/hours"),
        "samples.bad": DeadLetters("metrics.dead"),
    },
    generate=generate,
    truth=truth,
)
