"""The step that SQL has no word for that works in a stream as in a batch."""

from pyspark.sql import DataFrame


def unique(samples: DataFrame) -> DataFrame:
    """Each sample once; one that is sent again has the same time."""
    return samples.dropDuplicates(["number", "at"])
