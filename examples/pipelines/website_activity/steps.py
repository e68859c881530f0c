"""The step that SQL has no word for that works in a stream as in a batch."""

from pyspark.sql import DataFrame


def unique(clicks: DataFrame) -> DataFrame:
    """Each click once. With the time among the columns a stream forgets what the watermark passed;
    a click that is sent again has the same time."""
    return clicks.dropDuplicates(["id", "at"])
