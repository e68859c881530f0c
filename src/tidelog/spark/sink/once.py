"""Writing exactly once, as Spark runs it: what the driver and the tasks do, and in which process.

A micro-batch goes through three kinds of processes, which share nothing but what is sent on:

1. The driver makes the writer anew for every micro-batch and pickles it for the tasks. That is the
   last moment before any of them begins, and the only one at which a driver that has just started
   can do something first: `OnceWriter.__getstate__` begins the run (`decisions.begin`).
2. Tasks write in transactions and leave them open (`write_once`). They alone know the id of the
   query and of the batch, from properties that Spark does not document (a test holds them).
3. The driver commits, in a process of its own, with what the tasks have sent it.

A batch write is the same; its writer is made once and knows its version from the start.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.arrow.writer import ArrowWriter, WriterSettings
from tidelog.client.batching import Identity
from tidelog.client.blocking_transactions import TransactionalProducer
from tidelog.client.settings import TransactionSettings
from tidelog.client.transactions import PreparedTransaction
from tidelog.errors import TidelogError
from tidelog.spark.launch.worker import settle
from tidelog.spark.locations import is_local, local_path
from tidelog.spark.sink import decisions
from tidelog.spark.sink.broker_port import BrokerPort
from tidelog.spark.sink.decisions import Decision, ExactlyOnceError, Run, Task, carry_out
from tidelog.spark.sink.write_options import OnceOptions
from tidelog.spark.table.writers import QUERY_ID_PROPERTY

_log = logging.getLogger(__name__)

# What all transactional ids of sinks begin with.
_PREFIX: Final = "tidelog-sink"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"
Batches = Iterator[pa.RecordBatch]


@dataclass
class WrittenOnce(WriterCommitMessage):
    """What one task has left open, if it has written anything, and in which run."""

    run: Run
    query: str
    version: int
    records: int = 0
    transaction: PreparedTransaction | None = None


class OnceWriter:
    """What batch and stream share: made in the driver, pickled, and used by tasks."""

    def __init__(self, settings: WriterSettings, once: OnceOptions) -> None:
        self._settings, self._once = settings, once
        self._run: Run | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Spark is about to send the writer to the tasks of one batch."""
        if self._run is None:
            prefix, timeout_ms = f"{_PREFIX}.{self._name()}", self._once.timeout_ms
            with self._port(prefix) as port:
                begin = decisions.begin(prefix, two_phase=port.two_phase, timeout_ms=timeout_ms)
                self._run = carry_out(begin, port)
        return self.__dict__.copy()

    def _name(self) -> str:
        return self._once.app_id

    def _port(self, prefix: str) -> BrokerPort:
        settings = self._settings
        return BrokerPort(settings.servers, settings.producer.client, prefix, self._once.timeout_ms)

    def _write(self, batches: Batches, query: str, version: int) -> WrittenOnce:
        run = self._run
        assert run is not None, "a writer is pickled before a task has it"
        settle()
        if run.has(query, version):
            _log.info("batch was written before query=%s version=%d", query, version)
            for _ in batches:
                continue
            return WrittenOnce(run, query, version)
        # A task without rows needs no transaction.
        first = next((each for each in batches if each.num_rows), None)
        if first is None:
            return WrittenOnce(run, query, version)
        with self._port(run.prefix) as port:
            claimed = carry_out(decisions.claim(run, _task()), port)
        records, left = self._write_rows(claimed, chain((first,), batches))
        return WrittenOnce(run, query, version, records, left)

    def _write_rows(
        self, claimed: PreparedTransaction, batches: Batches
    ) -> tuple[int, PreparedTransaction | None]:
        """Write all rows in one transaction, and leave it open."""
        transactions = TransactionSettings(claimed.transactional_id, self._once.timeout_ms)
        opened: list[TransactionalProducer] = []

        def open_producer(servers: str, *more: Any) -> TransactionalProducer:
            opened.append(TransactionalProducer(servers, transactions, *more))
            return opened[0]

        with ArrowWriter(self._settings, open_producer) as writer:
            (producer,) = opened
            producer.resume(Identity(claimed.producer_id, claimed.producer_epoch))
            producer.begin()
            try:
                for batch in batches:
                    writer.write(batch)
                written = writer.finish()
                return sum(written.values()), producer.prepare()
            except BaseException:
                # The driver would find it, at the latest when it starts again.
                with suppress(TidelogError):
                    producer.abort()
                raise

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = [each for each in messages if isinstance(each, WrittenOnce)]
        left = tuple(each.transaction for each in written if each.transaction is not None)
        records = sum(each.records for each in written)
        if left:
            run, query, version = written[0].run, written[0].query, written[0].version
            assert {(each.query, each.version) for each in written} == {(query, version)}, (
                "messages of one batch"
            )
            with self._port(run.prefix) as port:
                carry_out(decisions.commit(run, Decision(query, version, left)), port)
        _log.info("batch committed transactions=%d records=%d", len(left), records)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Let readers go on, if a task has told which run it was; else the next run sees to it."""
        written = next((each for each in messages if isinstance(each, WrittenOnce)), None)
        if written is not None:
            steps = decisions.give_up(written.run, written.query, written.version)
            with self._port(written.run.prefix) as port, suppress(TidelogError):
                carry_out(steps, port)


class OnceBatchWriter(OnceWriter, DataSourceArrowWriter):
    """Writes a DataFrame to topics as one version of an application's output."""

    def write(self, iterator: Batches) -> WriterCommitMessage:
        assert self._once.version is not None, "checked with the options"
        return self._write(iterator, self._once.app_id, self._once.version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class OnceStreamWriter(OnceWriter, DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch to topics, all of them at once."""

    def _name(self) -> str:
        return self._once.app_id or _query_in(self._once.checkpoint)

    def write(self, iterator: Batches) -> WriterCommitMessage:
        return self._write(
            iterator, _property(QUERY_ID_PROPERTY), int(_property(BATCH_ID_PROPERTY))
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


def _query_in(checkpoint: str) -> str:
    """The id that Spark has given a query, as its checkpoint keeps it."""
    place = local_path(checkpoint) / "metadata"
    try:
        if not checkpoint or not is_local(checkpoint):
            raise OSError("it is not on a disk of the driver")
        found = json.loads(place.read_text(encoding="utf-8"))["id"]
        return str(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExactlyOnceError(
            f"the id of the query cannot be read from its checkpoint '{checkpoint}' ({error}):"
            " set the option 'txnAppId' to a name that no other query uses"
        ) from error


def _task() -> Task:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "only tasks write"
    return Task(context.partitionId(), context.attemptNumber(), str(context.taskAttemptId()))


def _property(name: str) -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(name)
    if not found:
        raise ExactlyOnceError(f"Spark gave the task no {name}: nothing can be written once")
    return found
