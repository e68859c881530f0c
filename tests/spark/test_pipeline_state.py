"""A pipeline whose checkpoint or table was taken away or put back: refused, and no row is double.

P3 and P4 of the dangers that `docs/reliability.md` lists, through a real Spark and a real broker.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.spark.held_pipelines import HeldPipeline
from tests.spark.processes import wait_for
from tests.spark.table_writers import FORMATS, batch_of, start_delta_runtime, stream_writer
from tidelog.pipelines.declare.pipeline import Mode, PipelineError, TableSink
from tidelog.pipelines.run.checkpoint import Checkpoint
from tidelog.pipelines.run.table_state import check_table, set_aside
from tidelog.spark.table import writers
from tidelog.testing import Broker


@pytest.fixture(scope="module", autouse=True)
def _delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    start_delta_runtime(tmp_path_factory.mktemp("first"))


@pytest.fixture
def world(tidelog_broker: Broker, tidelog_topic: str, tmp_path: Path) -> HeldPipeline:
    servers, name = tidelog_broker.bootstrap_servers, f"s-{tidelog_topic[-24:]}"
    return HeldPipeline(tmp_path, servers, name, 100, False, retries=1)


# ---- what a table says, in both formats -----------------------------------------------------


class Written:
    """A table that a query has written two batches of, and the query's checkpoint."""

    def __init__(self, directory: Path, table_format: str) -> None:
        self.sink = TableSink(table_format, str(directory / "lake" / "visits"))
        self.root = directory / "state" / "visits"
        self.checkpoint = Checkpoint(str(self.root.parent), "visits")
        (self.root / "offsets").mkdir(parents=True)
        (self.root / "metadata").write_text('{"id":"query-a"}')
        for batch in range(2):
            self.plan(batch)
            self.commit(batch)

    def plan(self, batch: int) -> None:
        (self.root / "offsets" / str(batch)).write_text("v1\n{}\n-")

    def commit(self, batch: int) -> None:
        writer = stream_writer(Path(self.sink.path), format=self.sink.format)
        writer.commit([writer.write(iter([batch_of([batch])]))], batch)

    def check(self, *, append: bool = False) -> None:
        check_table(self.checkpoint, self.sink, "p.yaml", append=append)


@pytest.fixture(params=FORMATS)
def written(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    monkeypatch.setattr(writers, "_query_id", lambda: "query-a")
    return Written(tmp_path, request.param)


def test_a_table_without_its_checkpoint_is_refused(written: Written) -> None:
    written.check()
    shutil.rmtree(written.root)
    with pytest.raises(PipelineError) as refused:
        written.check()
    told = str(refused.value)
    assert f"visits: there is no checkpoint in {written.root}" in told
    assert f"the table {written.sink.path} has rows, which would come twice" in told
    assert "`tidelog pipeline run p.yaml --reset visits`" in told and "--append visits" in told
    written.check(append=True)
    assert set_aside(written.sink) is not None
    written.check()


def test_p4_a_checkpoint_one_batch_older_than_the_table_is_refused(written: Written) -> None:
    """The next batch would have the number of one that is there, and be taken for it."""
    written.plan(2)
    written.check()
    (written.root / "offsets" / "2").unlink()
    (written.root / "offsets" / "1").unlink()
    with pytest.raises(PipelineError, match=r"has its batch 1, and the checkpoint .* ends at 0"):
        written.check()


def test_a_table_that_is_gone_is_refused_where_batches_were_written(written: Written) -> None:
    """The run went on, and the earlier rows were missing."""
    aside = set_aside(written.sink)
    written.check()  # nothing is noted as written yet
    (written.root / "commits").mkdir()
    (written.root / "commits" / "1").write_text("v1\n{}")
    with pytest.raises(PipelineError) as refused:
        written.check()
    told = str(refused.value)
    assert f"visits: the table {written.sink.path} is gone" in told
    assert "Put the table back" in told and "--reset visits" in told
    assert aside is not None
    Path(aside).rename(written.sink.path)
    written.check()
    # A history of empty batches leaves a table too.
    shutil.rmtree(written.sink.path)
    writer = stream_writer(Path(written.sink.path), format=written.sink.format)
    writer.commit([writer.write(iter([]))], 0)
    written.check()


def test_a_table_without_rows_may_be_there_first(tmp_path: Path, written: Written) -> None:
    shutil.rmtree(written.root)
    set_aside(written.sink)
    writer = stream_writer(Path(written.sink.path), format=written.sink.format)
    writer.commit([writer.write(iter([]))], 0)
    written.check()


# ---- through the runner ---------------------------------------------------------------------


def test_p4_no_lost_cut_or_old_checkpoint_doubles_a_row(spark: Any, world: HeldPipeline) -> None:
    world.send(range(60))
    assert str(world.run(spark).state) == "done", world.notes
    older = world.directory / "older"
    shutil.copytree(world.checkpoint, older)
    world.send(range(60, 120))
    assert str(world.run(spark).state) == "done", world.notes
    assert world.table() == world.visits
    world.send(range(120, 150))

    newer = world.directory / "newer"
    shutil.copytree(world.checkpoint, newer)
    shutil.rmtree(world.checkpoint)
    with pytest.raises(PipelineError, match=r"there is no checkpoint in .* --reset visits"):
        world.run(spark)
    shutil.copytree(older, world.checkpoint, dirs_exist_ok=True)
    with pytest.raises(PipelineError, match="the checkpoint is older than the table"):
        world.run(spark)
    shutil.rmtree(world.checkpoint)
    shutil.copytree(newer, world.checkpoint)
    (world.checkpoint / "metadata").unlink()
    with pytest.raises(PipelineError, match="metadata is missing or cut off"):
        world.run(spark)

    (report,) = world.runner(spark, reset=["visits"]).run()
    assert (str(report.state), report.rows) == ("done", 150), world.notes
    assert world.table() == world.visits


@pytest.mark.parametrize("mode", [Mode.CATCH_UP, Mode.BATCH])
def test_nothing_is_reset_where_the_run_is_then_refused(
    spark: Any, world: HeldPipeline, mode: Mode
) -> None:
    """Checkpoint and table were gone before the error in another target's SQL was found."""
    left = [world.checkpoint / "offsets/0", world.directory / "lake/visits/part-0.parquet"]
    for file in left:
        file.parent.mkdir(parents=True)
        file.write_text("v1")
    with pytest.raises(
        PipelineError, match=r"--reset visit: .*did you mean visits\?; it has visits"
    ):
        world.runner(spark, mode, reset=["visit"]).run()
    with pytest.raises(PipelineError, match="--append other: there is no such target"):
        world.runner(spark, mode, append=["other"]).run()
    text = world.file.read_text()
    text = text.replace("steps:", 'steps:\n  wrong: {sql: "SELECT no FROM clicks"}')
    world.file.write_text(text.replace("on_error:", "  wrong: {from: wrong, topic: w}\non_error:"))
    with pytest.raises(PipelineError, match=r"p\.yaml:\d+:\d+: .*`no`"):
        world.runner(spark, mode, reset=["visits"]).run()
    assert all(file.exists() for file in left)


def test_p3_a_checkpoint_taken_from_a_running_stream_doubles_no_row(
    spark: Any, world: HeldPipeline
) -> None:
    """It stops, and does not begin anew on a table that has the rows."""
    world.send(range(40))
    runner = world.runner(spark, Mode.STREAM)
    rows: list[int] = []
    runner.listener = lambda reports: rows.append(reports[0].rows)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.extend(runner.run()))
    thread.start()
    try:
        wait_for(lambda: 40 in rows or not thread.is_alive())
        shutil.rmtree(world.checkpoint)
        world.send(range(40, 60))
        thread.join(120)
        assert not thread.is_alive(), "the stream goes on though nobody could resume it"
    finally:
        runner.stop()
        thread.join(60)
    assert str(ended[0].state) == "failed", world.notes
    assert ended[0].error == f"its checkpoint {world.checkpoint} was taken away while it ran"
    with pytest.raises(PipelineError, match=r"visits: .*checkpoint.*--reset visits"):
        world.run(spark)
    assert not world.table() - world.visits, "a row is double"
