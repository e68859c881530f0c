"""Log aggregation: lines of many hosts in several topics to one table, bad lines kept apart."""

from examples.pipelines.example import Example
from examples.pipelines.log_aggregation.generate import TOPICS, generate
from examples.pipelines.log_aggregation.truth import truth
from examples.pipelines.targets import DeadLetters, Delta

EXAMPLE = Example(
    topics=dict.fromkeys(TOPICS, 2),
    targets={
        "lines": Delta("lake/lines"),
        "unparsed": Delta("lake/unparsed"),
        "logs.bad": DeadLetters("lines.dead"),
    },
    generate=generate,
    truth=truth,
)
