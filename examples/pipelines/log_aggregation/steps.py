"""The step that SQL has no word for that works in a stream as in a batch."""

from pyspark.sql import DataFrame


def unique(lines: DataFrame) -> DataFrame:
    """Each line of a host once, however often it was shipped."""
    return lines.dropDuplicates(["host", "number", "at"])
