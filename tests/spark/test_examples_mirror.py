"""The mirror, small: every shape of record on another broker, and what a crash leaves twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from examples.pipelines.example import load
from examples.pipelines.targets import Comparison
from examples.pipelines.trial import Trial
from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import Mode
from tidelog.testing import Broker

COUNT = 2_000
LIMIT = 1_200


def test_a_mirror_keeps_all_of_every_record_and_repeats_what_was_not_committed(
    spark: Any, tmp_path: Path
) -> None:
    from tidelog.pipelines.run.runner import Runner, RunSettings

    example = load("mirror")
    parts = example.generate(COUNT, 3)
    sent = sum(map(len, parts))
    with Broker() as here, Broker() as there:
        servers, elsewhere = here.bootstrap_servers, there.bootstrap_servers
        trial = Trial("mirror", example, servers, tmp_path, parts, random.Random(3))
        trial.elsewhere = elsewhere
        trial.create_sources()
        trial.send(parts)
        place = trial.prepare("catch-up")
        environment = {
            "RUN": place.suffix,
            "LIMIT": str(LIMIT),
            "TIDELOG_BOOTSTRAP_SERVERS": servers,
            "TARGET_BOOTSTRAP_SERVERS": elsewhere,
        }

        def catch_up() -> tuple[int, Comparison]:
            pipeline = load_pipeline(place.directory / "pipeline.yaml", environment)
            settings = RunSettings(Mode.CATCH_UP)
            (report,) = Runner(spark, pipeline, check_static(pipeline), settings).run()
            (comparison,) = trial.compare(place)
            return report.rows, comparison

        rows, comparison = catch_up()
        assert rows == sent and comparison.equal, comparison.differences()
        assert comparison.held.repeats == 0

        # As after a kill between the writing of a micro-batch and its commit.
        commits = place.directory / "state/copy/commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
        assert last >= sent // LIMIT
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        again, comparison = catch_up()
        assert comparison.equal, comparison.differences()
        assert again == comparison.held.repeats > 0
