"""Website activity: clicks to page views by ten minutes, and to sessions."""

from examples.pipelines.example import Example
from examples.pipelines.targets import DeadLetters, Delta, Latest
from examples.pipelines.website_activity.generate import TOPIC, generate
from examples.pipelines.website_activity.truth import truth

EXAMPLE = Example(
    topics={TOPIC: 3},
    targets={
        "page_views": Latest("page-views"),
        "sessions": Delta("lake/sessions"),
        "clicks.bad": DeadLetters("clicks.dead"),
    },
    generate=generate,
    truth=truth,
)
