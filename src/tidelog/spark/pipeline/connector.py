"""The options of the data source `tidelog` that a pipeline's sources and targets stand for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tidelog.client.admin import list_topics
from tidelog.client.blocking import Client
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.operation import topic_metadata
from tidelog.client.settings import ClientSettings
from tidelog.model import Isolation, TopicPartition
from tidelog.spark.offsets import nest
from tidelog.spark.pipeline.model import Pipeline, Source, Start, TopicSink
from tidelog.spark.pipeline.published import TOPIC as PUBLISHED

Ends = Mapping[TopicPartition, int]


def connect_options(pipeline: Pipeline, sink: TopicSink | None = None) -> dict[str, str]:
    """What every reader and writer of a pipeline is told of the brokers."""
    connect = sink.connect if sink is not None and sink.connect else pipeline.connect
    return {f"kafka.{name}": value for name, value in connect.items()}


def read_options(pipeline: Pipeline, source: Source) -> dict[str, str]:
    """The options that a stream and a batch share: which topics, and what to do about loss."""
    options = connect_options(pipeline)
    if source.pattern:
        options["subscribePattern"] = _of_whole_names(source.pattern)
    else:
        options["subscribe"] = ",".join(source.topics)
    options["failOnDataLoss"] = "true" if source.fail_on_data_loss else "false"
    return {**options, **source.options}


def _of_whole_names(pattern: str) -> str:
    """The data source finds a pattern anywhere in a name; flags must stay in front.

    What runners tell of themselves is no data: a pipeline that read it would feed itself.
    """
    flags = re.match(r"(?:\(\?[a-zA-Z]+\))*", pattern)
    front = flags[0] if flags else ""
    return rf"{front}^(?!{re.escape(PUBLISHED)}\Z)(?:{pattern.removeprefix(front)})\Z"


def reads_topic(source: Source, topic: str) -> bool:
    """Whether a source would be given the records of a topic, now or once it is there."""
    if source.pattern:
        return re.search(_of_whole_names(source.pattern), topic) is not None
    return topic in source.topics


def stream_options(pipeline: Pipeline, source: Source, group: str) -> dict[str, str]:
    """The options of a stream; it commits its offsets to `group`."""
    options = {**read_options(pipeline, source), **_start(source.start, source)}
    if source.limit.rows is not None:
        options["maxOffsetsPerTrigger"] = str(source.limit.rows)
    if source.limit.bytes is not None:
        options["maxBytesPerTrigger"] = str(source.limit.bytes)
    options["kafka.group.id"] = group
    return options


def batch_options(pipeline: Pipeline, source: Source, ends: Ends) -> dict[str, str]:
    """The options of a batch over history, up to where the logs ended when it began.

    A source that begins at the end of the log has no history as a stream; a batch reads all.
    """
    start = Start() if source.start.kind == "latest" else source.start
    options = {**read_options(pipeline, source), **_start(start, source)}
    options["endingOffsets"] = json.dumps(nest(ends))
    return options


def _start(start: Start, source: Source) -> dict[str, str]:
    if start.kind == "time":
        return {"startingTimestamp": str(start.at), "startingOffsetsByTimestampStrategy": "latest"}
    if start.kind == "group":
        return {"startingOffsets": f"group:{start.at}"}
    if start.kind == "offsets":
        by_partition = {str(partition): offset for partition, offset in start.offsets.items()}
        return {"startingOffsets": json.dumps({source.topics[0]: by_partition})}
    return {"startingOffsets": start.kind}


def write_options(pipeline: Pipeline, topic: str, sink: TopicSink | None = None) -> dict[str, str]:
    """The options of a writer to one topic."""
    options = {**connect_options(pipeline, sink), "topic": topic}
    return {**options, **(sink.options if sink is not None else {})}


def open_client(pipeline: Pipeline, *, timeout_ms: int = 10_000) -> Client:
    """A client of the runner itself; it tells at once where no broker is."""
    settings = ClientSettings(
        client_id=f"tidelog-pipeline-{pipeline.name}",
        connect_timeout_ms=timeout_ms,
        request_timeout_ms=timeout_ms,
        operation_timeout_ms=timeout_ms,
        fail_fast=True,
    )
    return Client(pipeline.bootstrap_servers, settings)


def require_topics(pipeline: Pipeline) -> None:
    """Ask for the sources' topics, before Spark is started in vain.

    ConnectError where no broker is, UnknownTopicError where a topic is not.
    """
    with open_client(pipeline) as client:
        for source in pipeline.sources.values():
            client.run(topic_metadata(client.cluster, source.topics))
        client.run(list_topics(client.cluster))


def log_ends(client: Client, pipeline: Pipeline, source: Source) -> dict[TopicPartition, int]:
    """Where the logs of a source end now; UnknownTopicError where a topic is not there.

    With read_committed they end where the oldest open transaction begins: a batch that went further
    would wait for its end.
    """
    topics = list(source.topics)
    if source.pattern:
        known = client.run(list_topics(client.cluster))
        # As the data source does: what is internal to the broker is no data.
        names = [topic.name for topic in known if not topic.internal]
        topics = [name for name in names if reads_topic(source, name)]
    found = client.run(topic_metadata(client.cluster, topics)) if topics else {}
    partitions = [TopicPartition(name, number) for name, each in found.items()
                  for number in each.partitions]  # fmt: skip
    if not partitions:
        return {}
    wanted = dict.fromkeys(partitions, LATEST)
    ends = client.run(list_offsets(client.cluster, wanted, _isolation(pipeline, source)))
    return {partition: place.offset for partition, place in ends.items()}


def _isolation(pipeline: Pipeline, source: Source) -> Isolation:
    given = {name.lower(): value for name, value in read_options(pipeline, source).items()}
    committed = given.get("kafka.isolation.level", "").lower() == "read_committed"
    return Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
