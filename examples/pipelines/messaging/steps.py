"""The steps that SQL has no word for that works in a stream as in a batch."""

from pyspark.sql import DataFrame


def unique_requests(requests: DataFrame) -> DataFrame:
    """Each request once; one that is sent again has the same time."""
    return requests.dropDuplicates(["id", "at"])


def unique_replies(replies: DataFrame) -> DataFrame:
    """Each reply once."""
    return replies.dropDuplicates(["to", "at"])
