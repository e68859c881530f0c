"""Topic to topic: orders in many currencies to orders in one, the rest elsewhere."""

from examples.pipelines.example import Example
from examples.pipelines.targets import DeadLetters, Records
from examples.pipelines.topic_to_topic.generate import TOPIC, generate
from examples.pipelines.topic_to_topic.truth import truth

EXAMPLE = Example(
    topics={TOPIC: 3},
    targets={
        "priced": Records("orders.priced"),
        "rejected": Records("orders.rejected"),
        "orders.bad": DeadLetters("orders.dead"),
    },
    generate=generate,
    truth=truth,
)
