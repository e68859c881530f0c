"""The options of the data source `tidelog` that a pipeline's sources and targets stand for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tidelog.model import TopicPartition
from tidelog.pipelines.declare.pipeline import PUBLISHED_TOPIC, Pipeline, Source, Start, TopicSink
from tidelog.spark.source.offsets import nest

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
    return rf"{front}^(?!{re.escape(PUBLISHED_TOPIC)}\Z)(?:{pattern.removeprefix(front)})\Z"


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
