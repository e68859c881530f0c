"""Runs a pipeline: starts its queries, watches them, tries again, stops them cleanly.

One thread polls Spark; nothing runs in callbacks. Each query has its own life: one that fails is
started again from its checkpoint after a pause that doubles, `on_error.retries` times in a row, and
then the pipeline stops, or goes on without it. A stop waits for the micro-batches under way, so
that a topic does not get them twice.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from tidelog.pipelines.declare.check import Checked
from tidelog.pipelines.declare.connector import Ends
from tidelog.pipelines.declare.pipeline import Mode, Pipeline, PipelineError
from tidelog.pipelines.run.brokers import log_ends, open_client
from tidelog.pipelines.run.checkpoint import Checkpoint, Fingerprint
from tidelog.pipelines.run.explain import sentence
from tidelog.pipelines.run.option_check import check_options
from tidelog.pipelines.run.places import check_into
from tidelog.pipelines.run.plan import Plan
from tidelog.pipelines.run.queries import (
    Query,
    Streams,
    batch_records,
    build,
    check_names,
    pipeline_queries,
    sources_of,
    write_batch,
)
from tidelog.pipelines.run.reports import BadCounts, QueryReport, State
from tidelog.pipelines.run.table_state import check_table, set_aside
from tidelog.pipelines.run.watch import Watch
from tidelog.spark.jvm import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.2
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 25.0
_INITIALIZING: Final = "Initializing sources"
_BACKOFF_MAX_MS: Final = 300_000
_PYTHON_ERROR: Final = re.compile(r"[A-Za-z_.]*(Error|Exception|Interrupt): ")
_JAVA_ERROR: Final = re.compile(r"(?:Caused by)?: (?:[a-z]\w*\.)+(\w+: .+)")
Listener = Callable[[Sequence[QueryReport]], None]


@dataclass(slots=True)
class RunSettings:
    """How a run differs from what the file says; the sequences name targets."""

    mode: Mode = Mode.STREAM
    only: Sequence[str] = ()
    reset: Sequence[str] = ()
    append: Sequence[str] = ()
    into: str = ""
    publish: bool = True


@dataclass(slots=True)
class _Running:
    """One query while it runs."""

    query: Query
    frame: DataFrame
    checkpoint: Checkpoint
    fingerprint: Fingerprint
    report: QueryReport
    stream: StreamingQuery | None = None
    failures_in_a_row: int = 0
    retry_at: float = 0.0


@dataclass(slots=True)
class Runner:
    """A run of one pipeline in a session; `listener` is told after every look at the queries."""

    session: SparkSession
    pipeline: Pipeline
    checked: Checked
    settings: RunSettings
    listener: Listener = lambda reports: None
    notes: Callable[[str], None] = lambda text: None
    _stop: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Ask for the end; safe in a signal handler."""
        self._stop.set()

    def run(self) -> list[QueryReport]:
        """Run to the end; the last report of every query. Raises what makes a run impossible."""
        activate(self.session)
        queries = pipeline_queries(self.pipeline, self.settings.only)
        check_names("--reset", self.settings.reset, queries)
        check_names("--append", self.settings.append, queries)
        check_options(self.pipeline)
        if self.settings.mode is Mode.BATCH:
            self._refuse_history(queries)
            return self._run_batch(queries)
        if not self.pipeline.checkpoint:
            raise PipelineError(
                f"{self.pipeline.path}: a stream needs checkpoint: a directory for its state"
            )
        streams = Streams(self.session, self.pipeline, self.checked, self.settings.mode)
        running: list[_Running] = []
        try:
            # One by one: those that are prepared are unlocked when a later one fails.
            running.extend(self._prepare(streams, query) for query in queries)
            self._admit(running)
            return self._watch(streams, running)
        finally:
            for each in running:
                each.checkpoint.unlock()

    # ---- streams ------------------------------------------------------------------------------

    def _prepare(self, streams: Streams, query: Query) -> _Running:
        """Lock the checkpoint and see that the query can run and fits it; nothing is changed."""
        checkpoint = Checkpoint(self.pipeline.checkpoint, query.name, self.session)
        checkpoint.lock()
        try:
            frame = streams.build(query)
            fingerprint = streams.fingerprint(query, frame)
            running = _Running(query, frame, checkpoint, fingerprint, QueryReport(query.name))
            if query.name not in self.settings.reset:
                checkpoint.compare(fingerprint, str(self.pipeline.path))
                self._check_state(running)
        except BaseException:
            checkpoint.unlock()
            raise
        return running

    def _admit(self, running: list[_Running]) -> None:
        """Forget what is to begin anew, once it is known that every query can run."""
        for each in running:
            if each.query.name in self.settings.reset:
                self._reset(each.checkpoint, each.query)
            each.checkpoint.admit(each.fingerprint, str(self.pipeline.path))

    def _check_state(self, each: _Running) -> None:
        """Checkpoint and table go together; asked at every start, for either may be taken away."""
        file, query = str(self.pipeline.path), each.query
        each.checkpoint.check_whole(file)
        if query.table is not None:
            append = query.name in self.settings.append and each.report.batch < 0
            check_table(each.checkpoint, query.table, file, append=append)

    def _reset(self, checkpoint: Checkpoint, query: Query) -> None:
        checkpoint.reset()
        self.notes(f"{query.name}: begins anew")
        aside = set_aside(query.table) if query.table is not None else None
        if aside is not None:
            self.notes(f"{query.name}: the table so far is now {aside}")

    def _watch(self, streams: Streams, running: list[_Running]) -> list[QueryReport]:
        reports = [each.report for each in running]
        publish = self.settings.publish
        # The pipeline's group tells of all its queries, so only a run of all may commit to it; a
        # lone query commits to it by itself.
        whole = 1 < len(running) == len(pipeline_queries(self.pipeline))
        with Watch(self.pipeline, self.settings.mode, publish=publish, commit=whole) as watch:
            try:
                for each in running:
                    self._start(streams, each)
                while not self._stop.is_set() and self._look(streams, running):
                    watch.look(reports)
                    self.listener(reports)
                    self._stop.wait(POLL_S)
            finally:
                self._stop_all(streams, running)
                watch.finish(reports)
                self.listener(reports)
        return reports

    def _start(self, streams: Streams, each: _Running) -> None:
        try:
            self._check_state(each)
            mode, checkpoint = each.fingerprint.mode, each.checkpoint.path
            each.stream = streams.start(each.query, each.frame, mode, checkpoint)
            each.report.state = State.RUNNING
        except Exception as error:
            # What Spark raises at a start is as good as what it raises later.
            self._fail(each, error)
            return
        # One after the other: Spark gives a source's Python process ten seconds to start, which
        # several at once do not keep on a busy machine.
        deadline = time.monotonic() + START_TIMEOUT_S
        while (
            each.stream.isActive
            and each.stream.status["message"] == _INITIALIZING
            and time.monotonic() < deadline
            and not self._stop.wait(POLL_S / 4)
        ):
            pass

    def _look(self, streams: Streams, running: list[_Running]) -> bool:
        """See to every query; False when the run is over."""
        for each in running:
            if each.stream is not None:
                self._take_reports(streams, each)
                if each.checkpoint.is_gone and each.report.batch >= 0:
                    self._stop_without_checkpoint(each)
                elif not each.stream.isActive:
                    self._ended(streams, each)
            elif each.report.state is State.WAITING and time.monotonic() >= each.retry_at:
                self._start(streams, each)
        too_bad = self._judge(running)
        states = [each.report.state for each in running]
        if too_bad or (State.FAILED in states and self.pipeline.on_error.then == "stop"):
            return False
        return any(state in (State.RUNNING, State.WAITING) for state in states)

    def _stop_without_checkpoint(self, each: _Running) -> None:
        assert each.stream is not None
        each.stream.stop()
        each.stream = None
        path = each.checkpoint.path
        self._fail(each, PipelineError(f"its checkpoint {path} was taken away while it ran"))

    def _take_reports(self, streams: Streams, each: _Running) -> None:
        assert each.stream is not None
        each.report.written = streams.updates.get(each.query.name, each.report.written)
        last: Any = each.stream.lastProgress
        if last is None:
            return
        missed = last.batchId - each.report.batch > 1
        for progress in each.stream.recentProgress if missed else [last]:
            each.report.add(json.loads(progress.json))
            if progress.numInputRows:
                each.failures_in_a_row = 0

    def _ended(self, streams: Streams, each: _Running) -> None:
        assert each.stream is not None
        error = streams.errors.get(each.query.name) or each.stream.exception()
        self._take_reports(streams, each)
        each.stream = None
        if error is not None:
            self._fail(each, error)
        elif self.settings.mode is Mode.STREAM:
            self._fail(each, RuntimeError("Spark ended the query and gave no reason"))
        else:
            each.report.state = State.DONE

    def _fail(self, each: _Running, error: Exception) -> None:
        policy = self.pipeline.on_error
        each.report.failures += 1
        each.failures_in_a_row += 1
        each.report.error = _reason(error)
        hopeless = isinstance(error, PipelineError)
        if hopeless or each.failures_in_a_row > policy.retries:
            each.report.state = State.FAILED
            self.notes(f"{each.query.name}: failed: {each.report.error}")
            return
        pause_ms = min(policy.backoff_ms * 2 ** (each.failures_in_a_row - 1), _BACKOFF_MAX_MS)
        each.retry_at = time.monotonic() + pause_ms / 1000
        each.report.state = State.WAITING
        tries = f"{each.failures_in_a_row} of {policy.retries}"
        self.notes(
            f"{each.query.name}: failed, tried again in {pause_ms / 1000:g} s ({tries}):"
            f" {each.report.error}"
        )

    def _judge(self, running: list[_Running]) -> bool:
        """Whether too many records are bad; the first query that reads them tells."""
        for each in running:
            for name, counts in each.report.counts.items():
                final = each.report.state is State.DONE
                problem = too_many_bad(self.pipeline, name, counts, final=final)
                if problem:
                    each.report.error = problem
                    each.report.state = State.FAILED
                    self.notes(problem)
                    return True
        return False

    def _stop_all(self, streams: Streams, running: list[_Running]) -> None:
        """Wait until each query is between two micro-batches, and stop it there."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        active = [each for each in running if each.stream is not None]
        while active:
            for each in list(active):
                stream = each.stream
                assert stream is not None
                busy = stream.isActive and stream.status["isTriggerActive"]
                if not busy or time.monotonic() > deadline:
                    stream.stop()
                    self._take_reports(streams, each)
                    active.remove(each)
            if active:
                time.sleep(POLL_S / 4)
        for each in running:
            if each.report.state in (State.RUNNING, State.WAITING, State.STARTING):
                each.report.state = State.STOPPED

    # ---- batch --------------------------------------------------------------------------------

    def _run_batch(self, queries: list[Query]) -> list[QueryReport]:
        if self.settings.into:
            names = [query.name for query in queries]
            check_into(self.settings.into, names, self.pipeline)
        else:
            self._check_batch(queries)
        needed = {source.name: source for query in queries
                  for source in sources_of(query, self.pipeline, self.checked)}  # fmt: skip
        with open_client(self.pipeline) as client:
            ends: dict[str, Ends] = {
                name: log_ends(client, self.pipeline, source) for name, source in needed.items()
            }
        plans = [self._plan(query, ends) for query in queries]
        frames = [build(plan, query) for plan, query in zip(plans, queries, strict=True)]
        if not self.settings.into:
            self._reset_batch(queries)
        reports = [QueryReport(query.name) for query in queries]
        publish = self.settings.publish
        with Watch(self.pipeline, Mode.BATCH, publish=publish, commit=False) as watch:
            try:
                for plan, frame, query, report in zip(plans, frames, queries, reports, strict=True):
                    if not self._stop.is_set():
                        written = Observation()
                        frame = frame.observe(written, F.count(F.lit(1)).alias("rows"))
                        self._run_one(frame, query, report, lambda: self._tell(watch, reports))
                        if report.state is State.DONE:
                            report.written = int(written.get["rows"])
                            self._count(plan, report)
            finally:
                for report in reports:
                    if report.state is State.STARTING:
                        report.state = State.STOPPED
                watch.finish(reports)
                self.listener(reports)
        return reports

    def _refuse_history(self, queries: list[Query]) -> None:
        """PipelineError where a batch would write again what is there exactly once."""
        for query in queries:
            if query.is_once and not self.settings.into:
                raise PipelineError(
                    f"{self.pipeline.path}: target {query.name} is exactly_once, and a batch would"
                    " write its history once more: give --into DIR for a look at it, or catch up"
                )

    def _tell(self, watch: Watch, reports: list[QueryReport]) -> None:
        watch.look(reports)
        self.listener(reports)

    def _plan(self, query: Query, ends: dict[str, Ends]) -> Plan:
        observations = {
            source.name: Observation() for source in sources_of(query, self.pipeline, self.checked)
        }
        records = batch_records(self.pipeline, ends)
        return Plan(self.session, self.pipeline, self.checked, records, observations)

    def _run_one(
        self, frame: DataFrame, query: Query, report: QueryReport, tell: Callable[[], None]
    ) -> None:
        """Write one query's history in a thread, and go on telling meanwhile."""
        report.state = State.RUNNING
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(self._write, frame, query, report)
            try:
                while not wait([writing], POLL_S).done:
                    tell()
            except BaseException:
                self.session.sparkContext.cancelAllJobs()
                raise
            writing.result()

    def _write(self, frame: DataFrame, query: Query, report: QueryReport) -> None:
        activate(self.session)
        began = time.monotonic()
        try:
            write_batch(frame, query, self.pipeline, self.settings.into)
        except Exception as error:
            report.state = State.FAILED
            report.error = _reason(error)
            self.notes(f"{query.name}: failed: {report.error}")
            return
        report.batch_ms = int((time.monotonic() - began) * 1000)
        report.state = State.DONE

    def _count(self, plan: Plan, report: QueryReport) -> None:
        for name, observation in plan.observations.items():
            found = observation.get
            counts = report.counts.setdefault(name, BadCounts())
            counts.add(int(found["records"]), int(found["bad"]))
            report.rows += counts.records
            problem = too_many_bad(self.pipeline, name, counts, final=True)
            if problem:
                report.state, report.error = State.FAILED, problem
                self.notes(problem)
        report.rows_per_second = report.rows * 1000 / max(report.batch_ms, 1)

    def _check_batch(self, queries: list[Query]) -> None:
        """A batch beside a stream's checkpoint would count the same records twice."""
        if not self.pipeline.checkpoint:
            return
        for query in queries:
            checkpoint = Checkpoint(self.pipeline.checkpoint, query.name, self.session)
            if checkpoint.exists and query.name not in self.settings.reset:
                raise PipelineError(
                    f"{query.name} has a stream's checkpoint, and a batch would write what the"
                    " stream has written again: --into DIR writes beside it, --reset"
                    f" {query.name} makes the batch take its place"
                )

    def _reset_batch(self, queries: list[Query]) -> None:
        """Forget what the batch takes the place of; all locks first, so that it is all or none."""
        if not self.pipeline.checkpoint:
            return
        held: list[tuple[Checkpoint, Query]] = []
        try:
            for query in queries:
                if query.name in self.settings.reset:
                    checkpoint = Checkpoint(self.pipeline.checkpoint, query.name, self.session)
                    checkpoint.lock()
                    held.append((checkpoint, query))
            for checkpoint, query in held:
                self._reset(checkpoint, query)
        finally:
            for checkpoint, _ in held:
                checkpoint.unlock()


def too_many_bad(pipeline: Pipeline, source: str, counts: BadCounts, *, final: bool) -> str:
    """Why a pipeline stops over its bad records; empty where it does not."""
    limit = pipeline.sources[source].bad_records.stop_above
    share = counts.share(final=final)
    if limit is None or share is None or share <= limit:
        return ""
    return (
        f"{share:.2%} of the recent records of {source} are bad, more than {limit:.2%}:"
        " stopped, as bad_records.stop_above asks"
    )


def _reason(error: Exception) -> str:
    """The cause that Spark's wrapping hides, in one line.

    That of Python comes last in its traceback, that of the JVM behind the last "Caused by".
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    java = [found[1] for line in lines if (found := _JAVA_ERROR.match(line))]
    return (python or java or [sentence(error)])[-1]
