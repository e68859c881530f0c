"""Streams of text files into the sink; as a program, one that goes on until it is killed.

python -m tests.spark.text_streams BOOTSTRAP_SERVERS TOPIC INPUT CHECKPOINT
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def feed(directory: Path, name: str, lines: list[str]) -> None:
    """A file that a stream sees whole or not at all."""
    directory.mkdir(exist_ok=True)
    hidden = directory / f".{name}"
    hidden.write_text("\n".join(lines) + "\n")
    hidden.rename(directory / name)


def text_stream(spark: SparkSession, directory: Path, batch_files: int = 1) -> DataFrame:
    """The lines of the files in a directory, so many files in each micro-batch."""
    directory.mkdir(exist_ok=True)
    return spark.readStream.option("maxFilesPerTrigger", batch_files).text(str(directory))


def run_stream(
    frame: DataFrame,
    bootstrap_servers: str,
    topic: str,
    checkpoint: Path,
    *,
    stop: bool = True,
    **options: str,
) -> None:
    """Write to a topic what there is, and then stop or wait for more."""
    writer = (
        frame.writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
    )
    if stop:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


def main(bootstrap_servers: str, topic: str, directory: str, checkpoint: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = spark.getOrCreate()
    lines = text_stream(session, Path(directory))
    run_stream(lines, bootstrap_servers, topic, Path(checkpoint), stop=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
