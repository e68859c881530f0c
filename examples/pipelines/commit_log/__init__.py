"""Commit log: the changes of a SQLite table, and the table restored from them elsewhere."""

from examples.pipelines.commit_log.generate import TOPIC, generate
from examples.pipelines.commit_log.restore import Restored
from examples.pipelines.commit_log.truth import truth
from examples.pipelines.example import Example
from examples.pipelines.targets import DeadLetters

EXAMPLE = Example(
    topics={TOPIC: 3},
    targets={"products": Restored("products"), "changes.bad": DeadLetters("changes.dead")},
    generate=generate,
    truth=truth,
)
