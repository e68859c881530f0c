"""Outcomes of a run of the matrix, kept in a file from which the documentation is written."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat.clients import Client


@dataclass
class Results:
    """`passed` by client and case; a case that was not run is not there."""

    broker: str
    brokers: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    passed: dict[str, dict[str, bool]] = field(default_factory=dict)

    def add(self, client: str, case: str, passed: bool) -> None:
        """Note one phase of a test: a case has passed when set-up, call and teardown have."""
        cases = self.passed.setdefault(client, {})
        cases[case] = cases.get(case, True) and passed

    def covers(self, clients: Iterable[Client], cases: Collection[str]) -> bool:
        """Whether every client went through every one of the cases that it can be asked for."""
        return all(
            set(self.passed.get(client.name, ())) == set(cases) - set(client.lacks)
            for client in clients
        )


def merge(directory: Path, run: Results, clients: Iterable[Client], cases: Collection[str]) -> None:
    """Keep what the clients did that this run went through all cases with."""
    whole = [client.name for client in clients if run.covers([client], cases)]
    if not whole:
        return
    kept = read(directory, run.broker, run.brokers)
    for name in whole:
        kept.versions[name] = run.versions.get(name, "did not start")
        kept.passed[name] = run.passed[name]
    directory.mkdir(parents=True, exist_ok=True)
    content = {"versions": kept.versions, "passed": kept.passed}
    _path(directory, run.broker, run.brokers).write_text(
        json.dumps(content, indent=1, sort_keys=True) + "\n"
    )


def _path(directory: Path, broker: str, brokers: int) -> Path:
    return directory / f"{broker.lower().replace(' ', '-')}-{brokers}.json"


def read(directory: Path, broker: str, brokers: int) -> Results:
    """What is kept of runs against so many brokers, which may be nothing."""
    path = _path(directory, broker, brokers)
    content = json.loads(path.read_text()) if path.exists() else {"versions": {}, "passed": {}}
    return Results(broker, brokers, content["versions"], content["passed"])
