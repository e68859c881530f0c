"""Mirror: a topic of one broker kept on another, record by record."""

from examples.pipelines.example import Example
from examples.pipelines.mirror.copy import Copy
from examples.pipelines.mirror.generate import PARTITIONS, TOPIC, generate
from examples.pipelines.mirror.truth import truth

EXAMPLE = Example(
    topics={TOPIC: PARTITIONS},
    targets={"copy": Copy(TOPIC)},
    generate=generate,
    truth=truth,
    elsewhere=True,
)
