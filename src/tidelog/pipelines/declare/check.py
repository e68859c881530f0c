"""What can be said of a pipeline without Spark: names, cycles, files, and rules between the parts.

`check_static` gives the order in which the steps are made and notes what is allowed but may
surprise; whatever makes the pipeline impossible is raised, all at once, with file and line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.config.table import hint
from tidelog.config.yaml_tree import Mark
from tidelog.pipelines.declare.connector import reads_topic
from tidelog.pipelines.declare.pipeline import (
    BadPolicy,
    Emit,
    Pipeline,
    PipelineError,
    Source,
    Step,
    TableSink,
    Target,
    TopicSink,
    ValueFormat,
)
from tidelog.pipelines.declare.section import Problems
from tidelog.pipelines.declare.sql_names import RESERVED, references
from tidelog.spark.locations import overlap
from tidelog.topic_names import topic_name_fault

BAD_SUFFIX: Final = ".bad"
_RESERVED_TARGETS: Final = frozenset({"metadata", "offsets", "commits", "sources", "state"})


@dataclass(slots=True)
class Checked:
    """A pipeline that passed: the steps' order, what each reads, and warnings."""

    order: list[str]
    inputs: dict[str, list[str]]
    warnings: list[str] = field(default_factory=list)

    def sources_of(self, relation: str, sources: Mapping[str, Source]) -> list[str]:
        """The sources that a relation comes from, in the order of the file."""
        reached = upstream(relation, self.inputs)
        return [name for name in sources if name in reached]


def check_static(pipeline: Pipeline) -> Checked:
    """Check all that needs no Spark; PipelineError names everything that is wrong."""
    problems = Problems()
    _check_names(pipeline, problems)
    inputs, guessed = _check_inputs(pipeline, problems)
    order = _check_cycles(pipeline.steps, inputs, guessed, problems)
    for source in pipeline.sources.values():
        _check_source(source, problems)
    for target in pipeline.targets.values():
        _check_target(target, pipeline, problems)
    _check_loops(pipeline, problems)
    _check_topics(pipeline, problems)
    _check_files(pipeline, problems)
    if problems.lines:
        raise PipelineError(*problems.lines)
    checked = Checked(order, inputs)
    for name in guessed:
        checked.warnings.append(
            f"{pipeline.steps[name].mark}: the SQL of step {name} cannot be checked without Spark;"
            " what it reads is guessed from its words"
        )
    _warn(pipeline, checked)
    return checked


def _relations(pipeline: Pipeline) -> Iterator[Source | Step]:
    yield from pipeline.sources.values()
    yield from pipeline.steps.values()


def _check_names(pipeline: Pipeline, problems: Problems) -> None:
    seen: dict[str, Mark] = {}
    for part in _relations(pipeline):
        if part.name.upper() in RESERVED:
            what = f"{part.name} is a word of SQL, which a statement could not tell from a relation"
            problems.add(part.mark, f"{what}; give it another name")
        first = seen.setdefault(part.name.lower(), part.mark)
        if first is not part.mark:
            problems.add(
                part.mark,
                f"the name {part.name} is taken at line {first.line}; SQL does not tell case apart",
            )
    folders: dict[str, Mark] = {}
    for target in pipeline.targets.values():
        first = folders.setdefault(target.name.lower(), target.mark)
        if first is not target.mark:
            problems.add(target.mark, f"the name {target.name} is taken at line {first.line}")
        if target.name in _RESERVED_TARGETS or target.name.endswith(BAD_SUFFIX):
            problems.add(target.mark, f"a target cannot be called {target.name}")


def _check_inputs(pipeline: Pipeline, problems: Problems) -> tuple[dict[str, list[str]], list[str]]:
    """What each step reads, and the steps of which that is a guess."""
    names = {name.lower(): name for name in (*pipeline.sources, *pipeline.steps)}
    inputs: dict[str, list[str]] = {}
    guessed: list[str] = []
    for step in pipeline.steps.values():
        read = inputs.setdefault(step.name, [])
        if step.sql is not None:
            answer = references(step.sql.text)
            if not answer.certain:
                guessed.append(step.name)
            places = [(each.name, step.sql.locate(each.line, each.column))
                      for each in answer.found]  # fmt: skip
        else:
            places = [(name, step.mark) for name in step.inputs]
        for name, mark in places:
            if name.lower() in names:
                read.append(names[name.lower()])
            elif step.name not in guessed:
                problems.add(mark, f"step {step.name} reads {name}, which is neither a source nor"
                             f" a step{hint(name, names.values())}")  # fmt: skip
    for target in pipeline.targets.values():
        if target.relation.lower() not in names:
            problems.add(
                target.mark,
                f"target {target.name} is from {target.relation}, which is neither a source nor"
                f" a step{hint(target.relation, names.values())}",
            )
        else:
            target.relation = names[target.relation.lower()]
    return inputs, guessed


def _check_cycles(
    steps: Mapping[str, Step],
    inputs: Mapping[str, list[str]],
    guessed: Collection[str],
    problems: Problems,
) -> list[str]:
    """The steps, each behind those that it reads; a circle through a guess may be none."""
    order: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in order or name not in steps:
            return
        if name in path:
            cycle = [*path[path.index(name) :], name]
            if not set(cycle) & set(guessed):
                circle = " → ".join(cycle)
                problems.add(steps[name].mark, f"the steps read each other in a circle: {circle}")
                order.append(name)
            return
        path.append(name)
        for each in inputs.get(name, ()):
            visit(each)
        path.pop()
        if name not in order:
            order.append(name)

    for name in steps:
        visit(name)
    return order


def _check_source(source: Source, problems: Problems) -> None:
    bad = source.bad_records
    if bad.policy is not BadPolicy.DROP and not source.can_be_bad:
        problems.add(source.mark, f"source {source.name} is raw, so no record of it can be bad")
    if bad.policy is BadPolicy.TOPIC and reads_topic(source, bad.topic):
        problems.add(source.mark, f"source {source.name} would read its own bad records again")
    if source.start.kind == "offsets" and len(source.topics) != 1:
        problems.add(source.mark, "start by partition needs one topic")
    if source.value.confluent_prefix and source.value.format is ValueFormat.RAW:
        problems.add(source.mark, "a raw value keeps its bytes; prefix is for json, csv and text")


def _check_target(target: Target, pipeline: Pipeline, problems: Problems) -> None:
    sink = target.sink
    if isinstance(sink, TopicSink):
        if sink.value is ValueFormat.RAW and (sink.headers or sink.partition):
            problems.add(
                target.mark,
                f"target {target.name} is raw: its columns headers and partition are taken as"
                " they are, name no others",
            )
        _check_tombstone(target, sink, problems)
        return
    _check_place(target, sink, pipeline, problems)


def _check_place(target: Target, sink: TableSink, pipeline: Pipeline, problems: Problems) -> None:
    if pipeline.checkpoint and overlap(sink.path, pipeline.checkpoint):
        problems.add(
            target.mark,
            f"the table {sink.path} of target {target.name} and the checkpoint"
            f" {pipeline.checkpoint} lie in one another; give each a directory of its own",
        )
    for other in pipeline.targets.values():
        if not isinstance(other.sink, TableSink) or not other.mark < target.mark:
            continue
        if other.sink.path == sink.path:
            problems.add(
                target.mark,
                f"target {target.name} writes to the same directory as {other.name}; a table"
                " has one writer",
            )
        elif overlap(other.sink.path, sink.path):
            problems.add(
                target.mark,
                f"the table {sink.path} of target {target.name} and that of {other.name},"
                f" {other.sink.path}, lie in one another; readers would take one for a part of"
                " the other",
            )


def _check_tombstone(target: Target, sink: TopicSink, problems: Problems) -> None:
    if not sink.tombstone:
        return
    if not sink.key:
        what = "has a tombstone and no key, so nobody could tell what is deleted"
        problems.add(target.mark, f"target {target.name} {what}")
    if sink.value is ValueFormat.RAW:
        what = "is raw: a row whose value is null is a tombstone already"
        problems.add(target.mark, f"target {target.name} {what}")


def _check_loops(pipeline: Pipeline, problems: Problems) -> None:
    """A topic that is read and written would feed itself without end; on other brokers it may."""
    for target in pipeline.targets.values():
        sink = target.sink
        if not isinstance(sink, TopicSink):
            continue
        servers = sink.connect.get("bootstrap.servers", pipeline.bootstrap_servers)
        for source in pipeline.sources.values():
            if servers == pipeline.bootstrap_servers and reads_topic(source, sink.topic):
                by = f" by its pattern {source.pattern}" if source.pattern else ""
                problems.add(
                    target.mark,
                    f"target {target.name} writes to {sink.topic}, which source {source.name}"
                    f" reads{by}",
                )


def _check_topics(pipeline: Pipeline, problems: Problems) -> None:
    for source in pipeline.sources.values():
        for topic in source.topics:
            _check_topic(topic, source.mark, problems)
    for source in pipeline.with_dead_letters():
        _check_topic(source.bad_records.topic, source.mark, problems)
    for target in pipeline.targets.values():
        if isinstance(target.sink, TopicSink):
            _check_topic(target.sink.topic, target.mark, problems)


def _check_topic(topic: str, mark: Mark, problems: Problems) -> None:
    if topic_name_fault(topic) is not None:
        problems.add(
            mark,
            f"'{topic}' is no topic: a name has 1 to 249 letters, digits, '.', '_' and '-', and is"
            " neither '.' nor '..'",
        )


def _check_files(pipeline: Pipeline, problems: Problems) -> None:
    for step in pipeline.steps.values():
        if step.python is not None and not step.python.path.is_file():
            problems.add(step.mark, f"there is no file {step.python.path}")
    outputs = [*pipeline.targets, *(name + BAD_SUFFIX for name in pipeline.sources)]
    for case in pipeline.tests:
        for part, names in ((case.given, list(pipeline.sources)), (case.expect, outputs)):
            for name, path in part.items():
                if name not in names:
                    kind = "source" if part is case.given else "target"
                    problems.add(case.mark, f"there is no {kind} {name}{hint(name, names)}")
                elif not path.is_file():
                    problems.add(case.mark, f"there is no file {path}")


def _warn(pipeline: Pipeline, checked: Checked) -> None:
    used = {name for target in pipeline.targets.values()
            for name in upstream(target.relation, checked.inputs)}  # fmt: skip
    for part in _relations(pipeline):
        if part.name not in used:
            checked.warnings.append(f"{part.mark}: no target uses {part.name}")
    for source in pipeline.sources.values():
        dropped = source.can_be_bad and source.bad_records.policy is BadPolicy.DROP
        if source.name in used and dropped:
            checked.warnings.append(
                f"{source.mark}: bad records of {source.name} are dropped and only counted;"
                " bad_records: {to: TOPIC} keeps them"
            )
        if source.watermark is not None:
            checked.warnings.append(
                f"{source.watermark.mark}: rows later than the watermark are dropped by a stream"
                " and kept by a batch, so the two agree only where nothing was late"
            )
    for target in pipeline.targets.values():
        sink = target.sink
        if isinstance(sink, TopicSink) and target.emit is Emit.UPDATES and not sink.key:
            checked.warnings.append(
                f"{target.mark}: target {target.name} emits updates without a key, so a reader"
                " cannot tell which row an update replaces"
            )


def upstream(relation: str, inputs: Mapping[str, list[str]]) -> set[str]:
    """A relation and all that it is made of."""
    reached: set[str] = set()
    waiting = [relation]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += inputs.get(name, ())
    return reached
