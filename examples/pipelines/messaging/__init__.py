"""Messaging: requests to the queues of services, and which of them were answered in time."""

from examples.pipelines.example import Example
from examples.pipelines.messaging.generate import REPLIES, REQUESTS, generate
from examples.pipelines.messaging.truth import truth
from examples.pipelines.targets import DeadLetters, Delta, Records

EXAMPLE = Example(
    topics={REQUESTS: 3, REPLIES: 2},
    targets={
        "mail": Records("queue.mail"),
        "print": Records("queue.print"),
        "answers": Delta("lake/answers"),
        "requests.bad": DeadLetters("requests.dead"),
        "replies.bad": DeadLetters("replies.dead"),
    },
    generate=generate,
    truth=truth,
)
