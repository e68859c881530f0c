"""The step that SQL has no word for that works in a stream as in a batch."""

from pyspark.sql import DataFrame


def unique(events: DataFrame) -> DataFrame:
    """Each event of an account once; one that is sent again has the same time."""
    return events.dropDuplicates(["account", "version", "at"])
