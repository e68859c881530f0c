"""The data source `tidelog` behind Spark's interface: batch and streaming, reading and writing.

Spark pickles readers to its workers, so they hold options and nothing else; what is open (clients,
connections) lives in this module's process and is made again where it is missing. Workers are used
again for the next micro-batch, and their connections with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.arrow.decode import Decoder
from tidelog.arrow.record_columns import RECORD_COLUMNS
from tidelog.arrow.scan import DataLossError, PartitionRange, Scan, ScanPolicy
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.security import ClientSecurity
from tidelog.spark.launch.worker import settle
from tidelog.spark.option_values import OptionError
from tidelog.spark.source.limits import DEFAULT_BYTES_PER_BATCH
from tidelog.spark.source.offsets import StreamOffset
from tidelog.spark.source.planning import plan_tasks
from tidelog.spark.source.progress import QueryProgress, log_line
from tidelog.spark.source.read_options import ReadOptions, parse
from tidelog.spark.source.topics import Topics


def default_schema(options: Mapping[str, str]) -> str:
    """The columns of a query that names none."""
    with_headers = str(options.get("includeHeaders", "false")).lower() == "true"
    names = [name for name in RECORD_COLUMNS if with_headers or name != "headers"]
    return ", ".join(f"{name} {RECORD_COLUMNS[name]}" for name in names)


class RangesPartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: list[PartitionRange]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def _arrow_schema(schema: StructType) -> pa.Schema:
    wanted = to_arrow_schema(schema, timezone="UTC")
    try:
        Decoder(wanted)
    except ValueError as error:
        raise OptionError(
            f"the schema given does not fit: {error}. It chooses columns "
            f"({default_schema({'includeHeaders': 'true'})}); values are decoded behind the source"
        ) from error
    return wanted


# One consumer for each way of reading; a worker serves task after task. The text of settings has
# no secrets, so who reads is a part of the key by itself.
_consumers: dict[tuple[str, str, ClientSecurity], Consumer] = {}


def read_ranges(
    options: ReadOptions, schema: StructType, ranges: list[PartitionRange]
) -> Iterator[pa.RecordBatch]:
    """In a worker: the records of one task."""
    settle()
    settings = options.consumer
    key = (options.bootstrap_servers, str(settings), settings.client.security)
    consumer = _consumers.pop(key, None) or Consumer(options.bootstrap_servers, settings)
    on_loss = None if options.fail_on_data_loss else _tell_loss
    policy = ScanPolicy(on_loss, options.policy.stall_timeout_ms)
    decoder = Decoder(_arrow_schema(schema), settings.max_decompressed_bytes)
    # Kept only if the scan went well: after an error nobody knows what is still under way.
    finished = False
    try:
        yield from Scan(consumer, ranges, decoder, policy)
        finished = True
    finally:
        if finished and key not in _consumers:
            _consumers[key] = consumer
        else:
            consumer.close()


def _tell_loss(loss: DataLossError) -> None:
    log_line(f"{loss}; going on, because failOnDataLoss is false")


class _Reader:
    """What batch and stream share: made in the driver, pickled, and used by tasks."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        _arrow_schema(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangesPartition)
        return read_ranges(self._options, self._schema, partition.ranges)


class TidelogReader(_Reader, DataSourceReader):
    """A batch query."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        super().__init__(schema, parse(options, streaming=False))

    def partitions(self) -> list[InputPartition]:
        options = self._options
        topics = Topics(options)
        try:
            partitions = topics.partitions(fresh=True)
            starts = topics.resolve(options.starting, partitions, "startingOffsets")
            ends = topics.resolve(options.ending, partitions, "endingOffsets")
            ids = {tp.topic: topics.topic_id(tp.topic) for tp in partitions}
        finally:
            topics.close()
        ranges = [
            PartitionRange(tp.topic, tp.partition, starts[tp], ends[tp], ids[tp.topic])
            for tp in partitions
        ]
        tasks = plan_tasks(ranges, options.tasks)
        return [RangesPartition(each) for each in tasks] or [RangesPartition([])]


class TidelogStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query; its driver's side lives in one process from start to end."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        super().__init__(schema, parse(options, streaming=True))
        self._progress_: QueryProgress | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_progress_": None}

    @property
    def _progress(self) -> QueryProgress:
        if self._progress_ is None:
            self._progress_ = QueryProgress(self._options, Topics(self._options))
        return self._progress_

    def initialOffset(self) -> dict[str, Any]:
        return self._progress.initial().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark knows one limit at a time; rows, bytes and minimum are weighed by `advance`.
        return ReadMaxBytes(self._options.limits.max_bytes or DEFAULT_BYTES_PER_BATCH)

    def prepareForTriggerAvailableNow(self) -> None:
        self._progress.bound_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = StreamOffset.from_dict(start)
        end = self._progress.advance(begin, unlimited=isinstance(limit, ReadAllAvailable))
        # The very same where nothing is new: Spark compares strings.
        return start if end is begin else end.to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        newest = self._progress.newest()
        return None if newest is None else newest.to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = self._progress.ranges(StreamOffset.from_dict(start), StreamOffset.from_dict(end))
        return [RangesPartition(each) for each in plan_tasks(ranges, self._options.tasks)]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark leaves out the last batch, so `advance` commits what it is told."""
