"""The smallest pipeline: a properties file that copies one topic to another.

    kafka.topic=clicks
    kafka.targetTopic=clicks-copy
    metadata.broker.list=127.0.0.1:9092

`kafka.forceFromStart=true` and `kafka.autooffset.reset` say where it begins; a serializer of
strings has its bytes checked to be UTF-8, any other takes them as they are. A copy has the key, the
value (also none), the headers and the time of its record. Its partition is the key's in the target,
which may have fewer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidelog.config.properties_file import Entry
from tidelog.config.table import hint
from tidelog.config.yaml_tree import Mark, Scalar
from tidelog.pipelines.declare.pipeline import (
    Nulls,
    Pipeline,
    PipelineError,
    Source,
    Start,
    Step,
    Target,
    TopicSink,
    Value,
    ValueFormat,
)

# Every name that is understood, with the name that it stands for.
_NAMES: Final = {
    "pipeline": "pipeline",
    "checkpoint": "checkpoint",
    "kafka.topic": "topic",
    "kafka.targetTopic": "target",
    "kafka.forceFromStart": "from_start",
    "kafka.autooffset.reset": "reset",
    "auto.offset.reset": "reset",
    "metadata.broker.list": "servers",
    "bootstrap.servers": "servers",
    "kafka.bootstrap.servers": "servers",
    "key.serializer": "key_serializer",
    "serializer.class": "value_serializer",
    "key.serializer.class": "key_serializer",
    "value.serializer": "value_serializer",
}
_STARTS: Final = {
    "earliest": "earliest",
    "smallest": "earliest",
    "latest": "latest",
    "largest": "latest",
}
_RAW: Final = ("ByteArray", "ByteBuffer", "Bytes", "DefaultEncoder")
_TEXT: Final = ("String",)
# Without the partition, which a raw target would take as it is.
_COPY: Final = "SELECT key, value, headers, timestamp FROM records"


def pipeline_from_properties(entries: Sequence[Entry], path: Path) -> Pipeline:
    """The pipeline of a properties file; PipelineError names all that is wrong in it."""
    problems: list[str] = []
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.name not in _NAMES:
            problems.append(f"{entry.place}: unknown name {entry.name}{hint(entry.name, _NAMES)}")
        else:
            found[_NAMES[entry.name]] = entry
    for needed, name in (
        ("topic", "kafka.topic"),
        ("target", "kafka.targetTopic"),
        ("servers", "bootstrap.servers"),
    ):
        if not (needed in found and found[needed].text.strip()):
            problems.append(f"{path}: {name} is missing")
    start = _start(found, problems)
    value = _format(found.get("value_serializer"), problems)
    _format(found.get("key_serializer"), problems)
    if problems:
        raise PipelineError(*problems)
    return _pipeline(found, path, start, value)


def _pipeline(found: dict[str, Entry], path: Path, start: str, value: ValueFormat) -> Pipeline:
    topic, target = found["topic"].text.strip(), found["target"].text.strip()
    mark = Mark(str(path), _line(found["topic"]), 1)
    name = found["pipeline"].text if "pipeline" in found else path.stem
    state = found["checkpoint"].text if "checkpoint" in found else f"state/{name}"
    source = Source(
        "records",
        mark,
        topics=[topic],
        start=Start(start),
        value=Value(value, nulls=Nulls.KEEP),
        record=["key", "timestamp", "headers"] if value is ValueFormat.TEXT else ["headers"],
    )
    target_mark = Mark(str(path), _line(found["target"]), 1)
    step = Step("copies", mark, sql=Scalar(_COPY, mark))
    sink = TopicSink(target, ValueFormat.RAW, key="key")
    return Pipeline(
        path=path,
        name=re.sub(r"[^A-Za-z0-9_.-]", "-", name),
        connect={"bootstrap.servers": found["servers"].text.strip()},
        checkpoint=state if "://" in state else str((path.parent / state).absolute()),
        sources={source.name: source},
        steps={step.name: step},
        targets={"copy": Target("copy", target_mark, step.name, sink)},
    )


def _start(found: dict[str, Entry], problems: list[str]) -> str:
    reset = found.get("reset")
    start = "latest"
    if reset is not None:
        start = _STARTS.get(reset.text.strip(), "")
        if not start:
            problems.append(f"{reset.place}: '{reset.text}' is none of {', '.join(_STARTS)}")
    force = found.get("from_start")
    if force is not None:
        if force.text.strip() not in ("true", "false"):
            problems.append(f"{force.place}: '{force.text}' is none of true, false")
        elif force.text.strip() == "true":
            start = "earliest"
    return start


def _format(entry: Entry | None, problems: list[str]) -> ValueFormat:
    if entry is None or any(word in entry.text for word in _RAW):
        return ValueFormat.RAW
    if any(word in entry.text for word in _TEXT):
        return ValueFormat.TEXT
    problems.append(
        f"{entry.place}: {entry.text} is no serializer that is known; strings and byte arrays are"
    )
    return ValueFormat.RAW


def _line(entry: Entry) -> int:
    return int(entry.place.rpartition(":")[2])
