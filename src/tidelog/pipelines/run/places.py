"""Directories that must not lie in one another: tables, checkpoints, what a batch writes beside."""

from __future__ import annotations

import re
from typing import Final

from tidelog.pipelines.declare.pipeline import Pipeline, PipelineError, TableSink
from tidelog.spark.locations import is_local, local_path, overlap
from tidelog.spark.table.parquet import beside

# What Spark leaves in a directory of Parquet, with the sums that Hadoop keeps beside each file.
_OF_PARQUET: Final = re.compile(r"part-.*\.parquet|_SUCCESS|\..*\.crc")


def batch_place(into: str, query: str) -> str:
    """Where a batch writes the rows of one query for a look."""
    return f"{into.rstrip('/') or '/'}/{query}"


def check_into(into: str, queries: list[str], pipeline: Pipeline) -> None:
    """PipelineError where `--into` would replace something else than what it wrote before."""
    problems = []
    for query in queries:
        place = batch_place(into, query)
        for what, taken in _taken(pipeline):
            if overlap(place, taken):
                problems.append(
                    f"--into {into} would replace {place}, and {what} is {taken}; name a directory"
                    " beside it"
                )
        if not problems and not _may_be_replaced(place):
            problems.append(
                f"--into {into} would replace {place}, which holds other files than a batch writes;"
                " name another directory, or remove it first"
            )
    if problems:
        raise PipelineError(*problems)


def _taken(pipeline: Pipeline) -> list[tuple[str, str]]:
    found = []
    for target in pipeline.targets.values():
        if isinstance(target.sink, TableSink):
            found.append((f"the table of {target.name}", target.sink.path))
            found.append((f"a part of the table of {target.name}", beside(target.sink.path)))
    if pipeline.checkpoint:
        found.append(("the checkpoint", pipeline.checkpoint))
    return found


def _may_be_replaced(place: str) -> bool:
    if not is_local(place):
        return True
    path = local_path(place)
    if not path.is_dir():
        return not path.exists()
    return all(each.is_file() and _OF_PARQUET.fullmatch(each.name) for each in path.iterdir())
