"""Event sourcing: what happened to accounts becomes their state, rebuilt from a compacted topic."""

from examples.pipelines.event_sourcing.generate import TOPIC, generate
from examples.pipelines.event_sourcing.rebuild import Rebuilt
from examples.pipelines.event_sourcing.truth import truth
from examples.pipelines.example import Example
from examples.pipelines.targets import DeadLetters

EXAMPLE = Example(
    topics={TOPIC: 3},
    targets={"accounts": Rebuilt("accounts"), "events.bad": DeadLetters("account-events.dead")},
    generate=generate,
    truth=truth,
)
