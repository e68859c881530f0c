"""A pipeline's file, read into the model: structure and types, with file, line and column.

`.yaml` and `.yml` are the form that `docs/pipelines.md` describes; any other name is the properties
form, the smallest pipeline. Whether names refer to something is `check`'s part.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tidelog.arrow.record_columns import RECORD_COLUMNS
from tidelog.config.properties_file import read_properties
from tidelog.config.yaml_tree import Mapping as MappingNode
from tidelog.config.yaml_tree import Node, Scalar, Sequence, read_tree
from tidelog.errors import ConfigError
from tidelog.pipelines.declare.pipeline import (
    MAX_FUTURE_MS,
    BadPolicy,
    BadRecords,
    Emit,
    Limit,
    Nulls,
    OnError,
    Pipeline,
    PipelineError,
    PythonFunction,
    Source,
    Start,
    Step,
    TableSink,
    Target,
    TestCase,
    TopicSink,
    Value,
    ValueFormat,
    Watermark,
)
from tidelog.pipelines.declare.properties import pipeline_from_properties
from tidelog.pipelines.declare.section import Problems, Section, substitute

FILE_BYTES_MAX: Final = 4 << 20
TABLE_FORMATS: Final = ("delta", "parquet")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_WHOLE: Final = re.compile(r"[0-9]{1,18}")
_RELATION: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION: Final = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def load_pipeline(path: str | Path, environment: Mapping[str, str]) -> Pipeline:
    """The pipeline that a file declares; PipelineError names all that is wrong in it."""
    path = Path(path)
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise PipelineError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise PipelineError(f"{path}: not UTF-8: {error.reason}") from None
    try:
        if path.suffix.lower() not in (".yaml", ".yml"):
            return pipeline_from_properties(read_properties(text, str(path)), path)
        tree = read_tree(text, str(path))
    except PipelineError:
        raise
    except ConfigError as error:
        raise PipelineError(str(error)) from None
    problems = Problems()
    substitute(tree, environment, problems)
    pipeline = _pipeline(Section(tree, "the file", problems), path)
    if problems.lines:
        raise PipelineError(*problems.lines)
    return pipeline


def _pipeline(top: Section, path: Path) -> Pipeline:
    name = top.scalar("pipeline", required=True)
    if name is not None and not NAME.fullmatch(name.text):
        top.problems.add(name.mark, "a pipeline's name has letters, digits, '_', '-' and '.'")
    connect = top.options("connect")
    if not connect.get("bootstrap.servers", "").strip():
        top.problems.add(top.mark, "the file needs connect: {bootstrap.servers: HOST:PORT}")
    checkpoint = top.text("checkpoint")
    pipeline = Pipeline(
        path=path,
        name=name.text if name is not None else "",
        connect=connect,
        checkpoint=_beside(path, checkpoint) if checkpoint else "",
        trigger_ms=top.duration_ms("trigger", 1_000),
        spark=top.options("spark"),
        sources={each.name: _source(each) for each in top.sections("sources", "source")},
        steps={each.name: _step(each, path) for each in top.sections("steps", "step")},
        targets={each.name: _target(each, path) for each in top.sections("targets", "target")},
        on_error=_on_error(top.section("on_error", "on_error")),
        tests=_tests(top, path),
    )
    for needed in ("sources", "targets"):
        node = top.get(needed)
        if node is None:
            top.problems.add(top.mark, f"the file needs {needed}")
        elif isinstance(node, MappingNode) and not node.values:
            top.problems.add(node.mark, f"{needed} is empty; a pipeline has one at least")
    top.finish()
    return pipeline


def _beside(file: Path, path: str) -> str:
    """A path of the file counts from where the file lies; a URL is what it is."""
    return path if "://" in path else str((file.parent / path).absolute())


# ---- sources ------------------------------------------------------------------------------


def _source(each: Section) -> Source:
    _check_relation(each)
    source = Source(each.name, each.place)
    kind = each.one_of(("topic", "topics", "pattern"))
    if kind == "topic":
        source.topics = [each.text("topic")]
    elif kind == "topics":
        source.topics = [topic.text.strip() for topic in each.texts("topics")]
    elif kind == "pattern":
        source.pattern = each.text("pattern")
        try:
            re.compile(source.pattern)
        except re.error as error:
            each.error("pattern", f"no regular expression: {error}")
    source.start = _start(each.get("start"), each)
    limit = each.section("limit", "limit")
    if limit is not None:
        source.limit = Limit(limit.integer("rows"), limit.integer("bytes"))
        limit.finish()
    source.fail_on_data_loss = each.word("on_data_loss", "fail", "continue") != "continue"
    source.value = _value(each)
    source.record = _record(each, source.value)
    source.bad_records = _bad_records(each)
    source.watermark = _watermark(each.section("watermark", "watermark"), source.value)
    source.options = each.options("options")
    each.finish()
    return source


def _check_relation(each: Section) -> None:
    if not _RELATION.fullmatch(each.name):
        rule = "letters, digits and '_', no digit first"
        each.problems.add(each.place, f"'{each.name}' cannot be a name in SQL: {rule}")


def _start(node: Node | None, each: Section) -> Start:
    if node is None:
        return Start()
    if isinstance(node, MappingNode):
        return _start_offsets(node, each)
    if not isinstance(node, Scalar):
        each.problems.add(node.mark, "start is a single value, or a mapping of partition to offset")
        return Start()
    text = node.text.strip()
    if text in ("earliest", "latest"):
        return Start(text)
    if text.startswith("group:"):
        if text == "group:":
            each.problems.add(node.mark, "start: group: needs the group's name")
        return Start("group", text.removeprefix("group:"))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        each.problems.add(
            node.mark,
            f"'{text}' is no start; write earliest, latest, a time (2026-01-01T00:00Z), "
            "group:NAME or {PARTITION: OFFSET}",
        )
        return Start()
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Start("time", int(moment.timestamp() * 1000))


def _start_offsets(node: MappingNode, each: Section) -> Start:
    offsets = {}
    if not node.values:
        each.problems.add(node.mark, "start names no partition; write {0: 120}, or earliest")
    for key, value in node.values.items():
        text = value.text.strip() if isinstance(value, Scalar) else ""
        if not _WHOLE.fullmatch(key) or not _WHOLE.fullmatch(text):
            each.problems.add(node.keys[key], "start maps partitions to offsets, as in {0: 120}")
        else:
            offsets[int(key)] = int(text)
    return Start("offsets", offsets=offsets)


def _value(each: Section) -> Value:
    node = each.get("value")
    if node is None:
        return Value()
    if isinstance(node, Scalar):
        kind = each.chosen(node, ValueFormat, ValueFormat.RAW)
        if kind in (ValueFormat.JSON, ValueFormat.CSV):
            example = f'value: {{{kind}: "name STRING, at TIMESTAMP"}}'
            each.problems.add(node.mark, f"{kind} needs a schema: {example}")
        return Value(kind)
    if isinstance(node, Sequence):
        each.problems.add(node.mark, "value is text, raw, or a mapping with json or csv")
        return Value()
    inner = Section(node, "value", each.problems)
    kind_name = inner.one_of([str(kind) for kind in ValueFormat])
    if kind_name is None:
        return Value()
    value = Value(ValueFormat(kind_name))
    if value.format in (ValueFormat.JSON, ValueFormat.CSV):
        value.schema = inner.scalar(kind_name, required=True)
    else:
        inner.get(kind_name)
    value.confluent_prefix = inner.word("prefix", "none", "confluent") == "confluent"
    value.nulls = inner.choice("nulls", Nulls, Nulls.BAD)
    value.options = inner.options("options")
    inner.finish()
    return value


def _record(each: Section, value: Value) -> list[str]:
    names = []
    for name in each.texts("record"):
        if name.text not in RECORD_COLUMNS or name.text == "value":
            listed = ", ".join(column for column in RECORD_COLUMNS if column != "value")
            each.problems.add(name.mark, f"a record has {listed}, no {name.text}")
        elif value.format is ValueFormat.RAW and name.text != "headers":
            each.problems.add(name.mark, f"a raw source has the column {name.text} already")
        else:
            names.append(name.text)
    return names


def _bad_records(each: Section) -> BadRecords:
    node = each.get("bad_records")
    if node is None:
        return BadRecords()
    if isinstance(node, Scalar):
        if node.text not in ("drop", "fail"):
            each.problems.add(node.mark, "bad_records is drop, fail or {to: TOPIC}")
            return BadRecords()
        return BadRecords(BadPolicy(node.text))
    inner = each.section("bad_records", "bad_records")
    if inner is None:
        return BadRecords()
    found = BadRecords(BadPolicy.TOPIC, inner.text("to", required=True))
    share = inner.scalar("stop_above")
    if share is not None:
        matched = _SHARE.fullmatch(share.text.strip())
        if matched is None or float(matched[1]) > 100:
            inner.problems.add(share.mark, "stop_above is a share such as 1% or 0.5%")
        else:
            found.stop_above = float(matched[1]) / 100
    inner.finish()
    return found


def _watermark(each: Section | None, value: Value) -> Watermark | None:
    if each is None:
        return None
    column = each.text("column", required=True)
    delay_ms = each.duration_ms("delay", 0, required=True)
    future_ms = each.duration_ms("max_future", MAX_FUTURE_MS)
    if "max_future" in each and value.format is ValueFormat.RAW:
        each.error("max_future", "no record of a raw source is bad, so max_future cannot be kept")
    found = Watermark(column, delay_ms, each.mark, future_ms)
    each.finish()
    return found


# ---- steps and targets --------------------------------------------------------------------


def _step(each: Section, path: Path) -> Step:
    _check_relation(each)
    step = Step(each.name, each.place)
    kind = each.one_of(("sql", "python"))
    if kind == "sql":
        step.sql = each.scalar("sql", required=True)
    elif kind == "python":
        found = each.scalar("python")
        matched = _FUNCTION.fullmatch(found.text.strip()) if found is not None else None
        if matched is not None:
            step.python = PythonFunction(Path(_beside(path, matched["path"])), matched["name"])
        elif found is not None:
            each.problems.add(found.mark, "python names a file and a function: steps.py:clean")
        step.inputs = [item.text.strip() for item in each.texts("inputs")]
        if not step.inputs and "inputs" not in each:
            needs = "needs inputs: the relations its function takes"
            each.problems.add(each.place, f"step {each.name} {needs}")
    each.finish()
    return step


def _target(each: Section, path: Path) -> Target:
    if not NAME.fullmatch(each.name):
        each.problems.add(each.place, "a target's name has letters, digits, '_', '-' and '.'")
    relation = each.text("from", required=True)
    kind = each.one_of(("topic", "table"))
    sink = _table(each, path) if kind == "table" else _topic(each)
    emit = _emit(each, kind)
    each.finish()
    return Target(each.name, each.place, relation, sink, emit)


def _emit(each: Section, kind: str | None) -> Emit | None:
    found = each.scalar("emit")
    if found is None:
        return None
    if found.text == "complete":
        each.error("emit", "the whole result with every batch is not written; emit: updates is")
        return None
    emit = each.chosen(found, Emit, Emit.FINAL)
    if kind == "table" and emit is Emit.UPDATES:
        each.error("emit", "a table takes rows once, so emit: final; updates go to a topic")
    return emit


def _topic(each: Section) -> TopicSink:
    connect = each.options("connect")
    if connect and not connect.get("bootstrap.servers", "").strip():
        each.error("connect", "connect needs bootstrap.servers: HOST:PORT")
    headers = each.pairs("headers")
    for name, column in headers.items():
        if not column.text.strip():
            each.problems.add(column.mark, f"the header {name} needs a column")
    return TopicSink(
        topic=each.text("topic"),
        value=each.choice("value", ValueFormat, ValueFormat.JSON),
        key=each.text("key"),
        partition=each.text("partition"),
        tombstone=each.text("tombstone"),
        connect=connect,
        headers={name: column.text.strip() for name, column in headers.items()},
        options=each.options("options"),
        exactly_once=each.word("exactly_once", "false", "true") == "true",
    )


def _table(each: Section, path: Path) -> TableSink:
    inner = each.section("table", "table")
    if inner is None:
        return TableSink("parquet", "")
    kind = inner.one_of(TABLE_FORMATS) or "parquet"
    location = inner.text(kind)
    columns = [column.text.strip() for column in inner.texts("partition_by")]
    added = inner.word("new_columns", "refuse", "add")
    inner.finish()
    place = _beside(path, location) if location else ""
    if place.startswith("file://"):
        place = unquote(urlsplit(place).path)
    elif "://" in place:
        inner.error(kind, f"'{location}' is no directory of this machine, nor one mounted on it")
    # One spelling for one directory: the parts of a pipeline are compared by it.
    place = os.path.normpath(place) if place else ""
    return TableSink(kind, place, columns, add_columns=added == "add")


def _on_error(each: Section | None) -> OnError:
    if each is None:
        return OnError()
    default = OnError()
    then = each.word("then", "stop", "continue")
    retries = each.integer("retries", default.retries, least=0)
    found = OnError(
        default.retries if retries is None else retries,
        each.duration_ms("backoff", default.backoff_ms),
        then,
    )
    each.finish()
    return found


def _tests(top: Section, path: Path) -> list[TestCase]:
    node = top.get("tests")
    if node is None:
        return []
    if not isinstance(node, Sequence):
        top.problems.add(node.mark, "tests is a list of cases, each with given and expect")
        return []
    cases = []
    for number, item in enumerate(node.items, 1):
        if not isinstance(item, MappingNode):
            top.problems.add(item.mark, "a test has given and expect")
            continue
        each = Section(item, "a test", top.problems)
        name = each.text("name", f"test {number}")
        files = {
            part: {key: Path(_beside(path, at.text)) for key, at in each.pairs(part).items()}
            for part in ("given", "expect")
        }
        for part, found in files.items():
            if not found:
                each.problems.add(item.mark, f"a test needs {part}: a file for each name")
        each.finish()
        cases.append(TestCase(name, item.mark, files["given"], files["expect"]))
    return cases
