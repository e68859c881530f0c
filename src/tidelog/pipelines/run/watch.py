"""The runner's own look at the brokers: lag in records and seconds, group offsets, publication.

A broker that does not answer costs what is shown, never the run: it is asked again later.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from typing import Final, Self

from tidelog.client.blocking import Client
from tidelog.client.group_admin import commit_offsets, group_lag
from tidelog.errors import TidelogError
from tidelog.pipelines.declare.pipeline import Mode, Pipeline
from tidelog.pipelines.run.brokers import open_client
from tidelog.pipelines.run.published import INTERVAL_MS, Published, Publisher
from tidelog.pipelines.run.reports import (
    Lag,
    QueryReport,
    State,
    report_json,
    smallest_positions,
)

_log = logging.getLogger(__name__)
_LAG_INTERVAL_S: Final = 2.0
_TIMEOUT_MS: Final = 2_000


class Watch:
    """What is looked at beside Spark while a pipeline runs.

    `commit` moves the pipeline's group to where the slowest query is.
    """

    def __init__(self, pipeline: Pipeline, mode: Mode, *, publish: bool, commit: bool) -> None:
        self._pipeline = pipeline
        self._mode = mode
        self._commit = commit
        self._client: Client = open_client(pipeline, timeout_ms=_TIMEOUT_MS)
        settings = self._client.cluster.settings
        self._publisher = Publisher(pipeline.bootstrap_servers, settings) if publish else None
        self._started_ms = int(time.time() * 1000)
        self._next_lag = self._next_word = 0.0

    def look(self, reports: Sequence[QueryReport]) -> None:
        """Do what is due."""
        now = time.monotonic()
        if now >= self._next_lag:
            self._next_lag = now + _LAG_INTERVAL_S
            self._measure(reports)
        if now >= self._next_word:
            self._next_word = now + INTERVAL_MS / 1000
            self._publish(reports, "running")

    def finish(self, reports: Sequence[QueryReport]) -> None:
        """The last look, and the last word."""
        self._measure(reports)
        states = {report.state for report in reports}
        if State.FAILED in states:
            word = "failed"
        else:
            word = "done" if states == {State.DONE} else "stopped"
        self._publish(reports, word)

    def _measure(self, reports: Sequence[QueryReport]) -> None:
        try:
            for report in reports:
                if report.positions:
                    lags = self._client.run(group_lag(self._client.cluster, report.positions))
                    ages = [lag.seconds for lag in lags.values() if lag.seconds is not None]
                    records = sum(lag.records for lag in lags.values())
                    report.lag = Lag(records, max(ages, default=None))
            if self._commit and all(report.positions for report in reports):
                group, positions = self._pipeline.group, smallest_positions(reports)
                self._client.run(commit_offsets(self._client.cluster, group, positions))
        except TidelogError as error:
            _log.debug("lag unknown pipeline=%s error=%s", self._pipeline.name, error)

    def _publish(self, reports: Sequence[QueryReport], state: str) -> None:
        if self._publisher is None:
            return
        word = Published(
            name=self._pipeline.name,
            state=state,
            mode=str(self._mode),
            file=str(self._pipeline.path),
            host=socket.gethostname(),
            process=os.getpid(),
            started_ms=self._started_ms,
            updated_ms=int(time.time() * 1000),
            queries=[report_json(report) for report in reports],
        )
        try:
            self._publisher.publish(word)
        except TidelogError as error:
            _log.debug("not published pipeline=%s error=%s", self._pipeline.name, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()
        if self._publisher is not None:
            self._publisher.close()
