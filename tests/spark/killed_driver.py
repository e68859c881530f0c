"""A driver that is going to be killed: `python -m tests.spark.killed_driver DIRECTORY TOPIC`.

It runs the pipeline in the directory as a stream, and beside it a query from the end of a topic
that hangs in its first micro-batch, with the file ``planned`` as the sign.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import Mode
from tidelog.spark.launch.session import open_session, session_settings

LOOK_SECONDS = 0.05


def from_the_end(session: Any, servers: str, topic: str) -> Any:
    """A stream of what comes from now on."""
    reader = session.readStream.format("tidelog").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).option("startingOffsets", "latest").load()


def main(directory: Path, topic: str) -> None:
    pipeline = load_pipeline(directory / "p.yaml", {})
    settings = {"spark.master": "local[2]", **pipeline.spark}
    session = open_session("killed", session_settings(settings, pipeline.checkpoint))
    # Only where there is a session can it be imported.
    from tidelog.pipelines.run.runner import Runner, RunSettings

    planned = threading.Event()

    def hang(batch: Any, batch_id: int) -> None:
        (directory / "planned").touch()
        planned.set()
        threading.Event().wait()

    servers = pipeline.bootstrap_servers
    writer = from_the_end(session, servers, topic).writeStream.foreachBatch(hang)
    writer = writer.option("checkpointLocation", str(directory / "latest"))
    # Spark gives a source's process ten seconds to start, too few on a busy machine.
    while not planned.is_set():
        query = writer.start()
        while query.isActive and not planned.wait(LOOK_SECONDS):
            continue
    run = RunSettings(Mode.STREAM, publish=False)
    Runner(session, pipeline, check_static(pipeline), run).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
