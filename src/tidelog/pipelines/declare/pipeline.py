"""A pipeline as its file declares it, typed; what a part was called and where it was written.

Texts that are judged later (SQL, schemas, Python functions) are kept as `Scalar`, so that an error
in them can still name its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from tidelog.config.yaml_tree import Mark, Scalar
from tidelog.errors import ConfigError

GROUP_PREFIX: Final = "tidelog."
# Where runners say how far they are.
PUBLISHED_TOPIC: Final = "__tidelog_pipelines"
MAX_FUTURE_MS: Final = 86_400_000


class PipelineError(ConfigError):
    """A pipeline that cannot run as it is written; each line names a place and what is wrong."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Mode(StrEnum):
    """How a pipeline runs: for ever, up to what is there now, or over history at once."""

    STREAM = "stream"
    CATCH_UP = "catch-up"
    BATCH = "batch"


class ValueFormat(StrEnum):
    """What the bytes of a value are."""

    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    RAW = "raw"


class Emit(StrEnum):
    """When an aggregate is written: whenever it changes, or once, when it changes no more."""

    UPDATES = "updates"
    FINAL = "final"


class Nulls(StrEnum):
    """What becomes of a record whose value is null."""

    BAD = "bad"
    KEEP = "keep"
    DROP = "drop"


class BadPolicy(StrEnum):
    """What becomes of a record whose value cannot be read."""

    TOPIC = "topic"
    DROP = "drop"
    FAIL = "fail"


@dataclass(slots=True)
class Start:
    """Where a source begins when it has no checkpoint; `at` is a time in ms or a group."""

    kind: str = "earliest"
    at: int | str = ""
    offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Limit:
    """How much one micro-batch takes at most."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(slots=True)
class Value:
    """How values are read; `options` are those of Spark's JSON or CSV reader."""

    format: ValueFormat = ValueFormat.RAW
    schema: Scalar | None = None
    confluent_prefix: bool = False
    nulls: Nulls = Nulls.BAD
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class BadRecords:
    """`stop_above` is a share of the recent records, above which the pipeline stops."""

    policy: BadPolicy = BadPolicy.DROP
    topic: str = ""
    stop_above: float | None = None


@dataclass(slots=True)
class Watermark:
    """How late a row may be by the time in `column`, and how far ahead of the clock."""

    column: str
    delay_ms: int
    mark: Mark
    max_future_ms: int = MAX_FUTURE_MS


@dataclass(slots=True)
class Source:
    """Topics that are read, and what their records become."""

    name: str
    mark: Mark
    topics: Sequence[str] = ()
    pattern: str = ""
    start: Start = field(default_factory=Start)
    limit: Limit = field(default_factory=Limit)
    fail_on_data_loss: bool = True
    value: Value = field(default_factory=Value)
    record: Sequence[str] = ()
    bad_records: BadRecords = field(default_factory=BadRecords)
    watermark: Watermark | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def can_be_bad(self) -> bool:
        """Raw values are taken as they are."""
        return self.value.format is not ValueFormat.RAW


@dataclass(slots=True)
class PythonFunction:
    """A function in a file beside the pipeline's."""

    path: Path
    name: str


@dataclass(slots=True)
class Step:
    """A named relation, made by SQL or by a Python function of its inputs."""

    name: str
    mark: Mark
    sql: Scalar | None = None
    python: PythonFunction | None = None
    inputs: Sequence[str] = ()


@dataclass(slots=True)
class TopicSink:
    """Rows as records of a topic; `key`, `partition`, `tombstone` and the headers name columns.

    `connect` is where the topic is, if it is not where the pipeline's own `connect` says.
    With `exactly_once` each micro-batch is one transaction.
    """

    topic: str
    value: ValueFormat = ValueFormat.JSON
    key: str = ""
    partition: str = ""
    tombstone: str = ""
    connect: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    exactly_once: bool = False


@dataclass(slots=True)
class TableSink:
    """Rows of a table in a directory; `format` is delta or parquet."""

    format: str
    path: str
    partition_by: Sequence[str] = ()
    add_columns: bool = False


@dataclass(slots=True)
class Target:
    """Where a relation is written."""

    name: str
    mark: Mark
    relation: str
    sink: TopicSink | TableSink
    emit: Emit | None = None


@dataclass(slots=True)
class OnError:
    """What happens when a query fails: tried again with growing pauses, and then?"""

    retries: int = 3
    backoff_ms: int = 5_000
    then: str = "stop"


@dataclass(slots=True)
class TestCase:
    """Files of given records by source, and of expected rows by target."""

    __test__ = False  # pytest collects by name

    name: str
    mark: Mark
    given: Mapping[str, Path]
    expect: Mapping[str, Path]


@dataclass(slots=True)
class Pipeline:
    """All of one file."""

    path: Path
    name: str
    connect: Mapping[str, str]
    checkpoint: str = ""
    trigger_ms: int = 1_000
    spark: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    steps: Mapping[str, Step] = field(default_factory=dict)
    targets: Mapping[str, Target] = field(default_factory=dict)
    on_error: OnError = field(default_factory=OnError)
    tests: Sequence[TestCase] = ()

    @property
    def group(self) -> str:
        """The group that shows how far the pipeline is."""
        return GROUP_PREFIX + self.name

    @property
    def bootstrap_servers(self) -> str:
        return self.connect["bootstrap.servers"]

    def with_dead_letters(self) -> Iterator[Source]:
        """The sources whose bad records go to a topic."""
        for source in self.sources.values():
            if source.can_be_bad and source.bad_records.policy is BadPolicy.TOPIC:
                yield source
