"""What the data source says of the options that a pipeline stands for, before a query starts.

Apart from `check`, because the data source's options need Arrow, and a static check starts at once.
"""

from __future__ import annotations

from typing import Final

from tidelog.pipelines.declare.connector import stream_options, write_options
from tidelog.pipelines.declare.pipeline import Pipeline, PipelineError, TopicSink
from tidelog.spark.option_values import OptionError
from tidelog.spark.sink.write_options import parse_once_options, parse_write_options
from tidelog.spark.source.read_options import parse

_OF_THE_RUNNER: Final = frozenset({"exactlyonce", "txnappid", "txnversion"})


def check_options(pipeline: Pipeline) -> None:
    """PipelineError names every source and target whose options the data source refuses."""
    problems = []
    for source in pipeline.sources.values():
        try:
            parse(stream_options(pipeline, source, pipeline.group), streaming=True)
        except OptionError as error:
            problems.append(f"{source.mark}: source {source.name}: {error}")
    for target in pipeline.targets.values():
        if isinstance(target.sink, TopicSink):
            problems += [
                f"{target.mark}: target {target.name}: option '{name}' is not for a pipeline: say"
                " exactly_once: true beside the topic"
                for name in target.sink.options
                if name.lower() in _OF_THE_RUNNER
            ]
            try:
                options = write_options(pipeline, target.sink.topic, target.sink)
                parse_write_options(options)
                if target.sink.exactly_once:
                    parse_once_options({**options, "exactlyOnce": "true"}, streaming=True)
            except OptionError as error:
                problems.append(f"{target.mark}: target {target.name}: {error}")
    if problems:
        raise PipelineError(*problems)
