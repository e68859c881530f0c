"""`tidelog pipeline`: init, check, run, test, list. PySpark is imported only where it is used."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.common import (
    choice_option,
    client_settings,
    connection_options,
    format_option,
    parse_assignments,
    print_json,
    print_rows,
    say,
)
from tidelog.cli.faults import EXIT_FAILED, EXIT_USAGE, CliError, paint

if TYPE_CHECKING:
    from tidelog.pipelines.declare.check import Checked
    from tidelog.pipelines.declare.pipeline import Pipeline
    from tidelog.pipelines.run.published import Published
    from tidelog.pipelines.run.reports import QueryReport

_file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_master_option = click.option(
    "--master", metavar="URL", help="Where Spark runs: local[2], spark://host:7077, yarn."
)
_conf_option = click.option(
    "--conf",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Spark; repeatable.",
)


_DRIVER_MEMORY = "spark.driver.memory"


def _remember_memory(context: click.Context, _: click.Parameter, value: str | None) -> None:
    context.meta[_DRIVER_MEMORY] = value


_memory_option = click.option(
    "--driver-memory",
    metavar="SIZE",
    callback=_remember_memory,
    expose_value=False,
    help=f"The heap of Spark's driver, as 1g: --conf {_DRIVER_MEMORY}=SIZE.",
)


@click.group()
def pipeline() -> None:
    """Run pipelines declared in a file, on Spark.

    A file names sources (topics), steps (SQL or Python) and targets (topics and tables).
    """


@pipeline.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--name", default="clicks", show_default=True, help="What the pipeline is called.")
def init(directory: Path, name: str) -> None:
    """Write a small working pipeline with a test."""
    from tidelog.pipelines.declare.starter import write_starter

    with _explained():
        written = write_starter(directory, name)
    for path in written:
        click.echo(str(path))
    say(f"next: tidelog pipeline test {written[0]}")


@pipeline.command()
@_file_argument
@click.option("--no-spark", is_flag=True, help="Only what can be said without Spark.")
@_master_option
@_conf_option
@format_option
def check(
    file: Path, no_spark: bool, master: str | None, settings: tuple[str, ...], output: str
) -> None:
    """Check a file, and report each problem with its line.

    Structure, names and files first; then Spark analyses the SQL over empty streams.
    """
    with _explained():
        found, checked = _load(file)
        analysed = []
        if not no_spark:
            with _session(found, master, settings) as session:
                from tidelog.pipelines.run.analysis import analyse

                analysed = analyse(session, found, checked)
    for warning in checked.warnings:
        say(f"{paint('warning:', '33', sys.stderr)} {warning}")
    if output == "json":
        targets = [{"name": each.target.name, "emits": each.mode, "columns": dict(each.columns)}
                   for each in analysed]  # fmt: skip
        print_json({"pipeline": found.name, "warnings": checked.warnings, "targets": targets})
        return
    for each in analysed:
        columns = ", ".join(f"{name} {kind}" for name, kind in each.columns)
        click.echo(f"{each.target.name}: {columns}")
    parts = (f"{len(found.sources)} sources", f"{len(found.steps)} steps")
    say(f"{file}: {', '.join(parts)} and {len(found.targets)} targets are well")


@pipeline.command()
@_file_argument
@choice_option(
    "--mode",
    choices=("stream", "catch-up", "batch"),
    help_text="For ever; up to what is there now; or over history, without a checkpoint.",
)
@click.option("--target", "targets", multiple=True, metavar="NAME", help="Only this; repeatable.")
@click.option(
    "--reset",
    multiple=True,
    metavar="NAME",
    help="Begin this target anew: its checkpoint is forgotten, its table set aside. Repeatable.",
)
@click.option(
    "--append",
    multiple=True,
    metavar="NAME",
    help="Let this target, which has no checkpoint, add to a table that has rows. Repeatable.",
)
@click.option("--into", metavar="DIR", default="", help="A batch writes Parquet there instead.")
@click.option("--no-publish", is_flag=True, help="Do not show up in `pipeline list`.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@_master_option
@_memory_option
@_conf_option
@format_option
@click.pass_context
def run(
    context: click.Context,
    file: Path,
    mode: str,
    targets: tuple[str, ...],
    reset: tuple[str, ...],
    append: tuple[str, ...],
    into: str,
    no_publish: bool,
    quiet: bool,
    master: str | None,
    settings: tuple[str, ...],
    output: str,
) -> None:
    """Run a pipeline until it ends or you press Ctrl-C.

    \b
    tidelog pipeline run clicks.yaml                                as a stream
    tidelog pipeline run clicks.yaml --mode catch-up                what is there now
    tidelog pipeline run clicks.yaml --mode batch --into /tmp/look  the whole history, beside it
    """
    if into and mode != "batch":
        raise CliError("--into is for --mode batch", "a stream writes to its targets", EXIT_USAGE)
    with _explained():
        found, checked = _load(file)
        from tidelog.pipelines.run.brokers import require_topics

        require_topics(found)
        with _session(found, master, settings, found.checkpoint) as session:
            from tidelog.cli.pipeline_view import View
            from tidelog.pipelines.declare.pipeline import Mode
            from tidelog.pipelines.run.runner import Runner, RunSettings

            wanted = RunSettings(Mode(mode), targets, reset, append, into, not no_publish)
            view = View(found.name, quiet=quiet or output == "json")
            runner = Runner(session, found, checked, wanted, view.show, view.note)
            with _stopping(runner.stop):
                reports = runner.run()
            view.finish(reports)
    _conclude(context, reports, output)


def _conclude(context: click.Context, reports: list[QueryReport], output: str) -> None:
    from tidelog.pipelines.run.reports import State, report_json

    if output == "json":
        print_json([report_json(report) for report in reports])
    failed = [report for report in reports if report.state is State.FAILED]
    if failed:
        say(*(f"{report.name}: {report.error}" for report in failed[:1]))
        context.exit(EXIT_FAILED)


@pipeline.command()
@_file_argument
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Only this; repeatable.")
@_master_option
@_conf_option
@format_option
@click.pass_context
def test(
    context: click.Context,
    file: Path,
    cases: tuple[str, ...],
    master: str | None,
    settings: tuple[str, ...],
    output: str,
) -> None:
    """Run the tests in a file, without a broker: input records, expected rows."""
    with _explained():
        found, checked = _load(file)
        if not found.tests:
            hint = "a test is `tests: [{given: {SOURCE: FILE}, expect: {TARGET: FILE}}]`"
            raise CliError(f"{file} has no tests", hint)
        names = [case.name for case in found.tests]
        for name in cases:
            if name not in names:
                hint = f"its tests are {', '.join(names)}"
                raise CliError(f"{file} has no test '{name}'", hint, EXIT_USAGE)
        wanted = [case for case in found.tests if not cases or case.name in cases]
        with _session(found, master, settings) as session:
            from tidelog.pipelines.run.cases import run_case

            results = [run_case(session, found, checked, case) for case in wanted]
    if output == "json":
        print_json([{"name": each.name, "passed": each.passed, **asdict(each)} for each in results])
    else:
        for each in results:
            mark = (
                paint("ok    ", "32", sys.stdout)
                if each.passed
                else paint("FAILED", "31", sys.stdout)
            )
            rows = ", ".join(f"{name} {count:,}" for name, count in each.rows.items())
            click.echo(f"{mark}  {each.name} ({rows})")
            for name, difference in each.differences.items():
                click.echo(f"        {name}: - expected, + came")
                for sign, lines in (("-", difference.missing), ("+", difference.extra)):
                    for line in lines:
                        click.echo(f"        {sign} {line}")
    if not all(each.passed for each in results):
        context.exit(EXIT_FAILED)


@pipeline.command("list")
@connection_options
def list_(bootstrap: str, output: str, timeout_s: float) -> None:
    """List pipelines that ran on this cluster: the last run in each mode, with its progress."""
    import time

    from tidelog.pipelines.run.published import read_published

    words = read_published(bootstrap, client_settings(timeout_s))
    rows = [_listed(word, int(time.time() * 1000)) for word in words]
    columns = ["name", "mode", "state", "host", "started", "rows", "written", "lag", "bad"]
    print_rows(rows, [*columns, "late", "seconds_ago"], output, "no pipelines")


def _listed(word: Published, now_ms: int) -> dict[str, Any]:
    """A run in one line: of rows the most that a target has, of the others as well."""
    from datetime import UTC, datetime

    def most(name: str) -> int | None:
        return max(
            (each[name] for each in word.queries if each.get(name) is not None), default=None
        )

    started = datetime.fromtimestamp(word.started_ms // 1000, UTC)
    written = [each["written"] for each in word.queries if each.get("written") is not None]
    return {
        "name": word.name,
        "mode": word.mode,
        "state": word.state_at(now_ms),
        "host": word.host,
        "started": started.isoformat().replace("+00:00", "Z"),
        "rows": most("rows") or 0,
        "written": sum(written) if written else None,
        "lag": most("lag"),
        "bad": most("bad") or 0,
        "late": most("late") or 0,
        "seconds_ago": round((now_ms - word.updated_ms) / 1000, 1),
        "targets": word.queries,
    }


# ---- what the commands share --------------------------------------------------------------


def _load(file: Path) -> tuple[Pipeline, Checked]:
    from tidelog.pipelines.declare.check import check_static
    from tidelog.pipelines.declare.file import load_pipeline

    found = load_pipeline(file, os.environ)
    return found, check_static(found)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what is wrong with a pipeline into the command line's errors."""
    from tidelog.pipelines.declare.pipeline import PipelineError
    from tidelog.spark.launch.java import JavaNotFoundError
    from tidelog.spark.launch.session import SparkMissingError

    try:
        yield
    except PipelineError as error:
        hint = "docs/pipelines.md describes the file; `tidelog pipeline init` writes one"
        raise CliError(str(error), hint, EXIT_USAGE) from error
    except JavaNotFoundError as error:
        hint = "set JAVA_HOME, or `pip install 'tidelog[java]'`"
        raise CliError(str(error), hint) from error
    except SparkMissingError as error:
        raise CliError(str(error), "`tidelog doctor` looks at Java, too") from error
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        hint = "choose another place, or clear this one"
        raise CliError(f"{place}{error.strerror or error}", hint) from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        from tidelog.pipelines.run.explain import sentence

        raise CliError(sentence(error), "what Spark itself says stands above") from error


@contextmanager
def _session(
    found: Pipeline, master: str | None, settings: tuple[str, ...], state: str = ""
) -> Iterator[Any]:
    """A session, and a JVM that ends with it; `state` is where its temporary files may lie."""
    from tidelog.spark.jvm import close_session
    from tidelog.spark.launch.run_directory import RunDirectory
    from tidelog.spark.launch.session import open_session, session_settings

    given: dict[str, Any] = {**found.spark, **parse_assignments(settings, "--conf")}
    if master is not None:
        given["spark.master"] = master
    memory = click.get_current_context().meta.get(_DRIVER_MEMORY)
    if memory is not None:
        given[_DRIVER_MEMORY] = memory
    directory = RunDirectory(state)
    try:
        wanted = session_settings(given, found.checkpoint, directory.path)
        session = open_session(f"tidelog {found.name}", wanted)
        try:
            yield session
        finally:
            close_session(session)
    finally:
        directory.remove()


@contextmanager
def _stopping(stop: Any) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the run cleanly, a second one at once."""

    def handle(number: int, frame: object) -> None:
        for each in before:
            signal.signal(each, before[each])
        say("stopping after the micro-batches under way; once more stops at once")
        stop()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before[signal.SIGINT] = signal.default_int_handler
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
