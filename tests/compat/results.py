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
    versions: dict[str, str] = field(default_factory=dict)
    passed: dict[str, dict[str, bool]] = field(default_factory=dict)

    def add(self, client: str, case: str, passed: bool) -> None:
        """Note one phase of a test: a case has passed when set-up, call and teardown have."""
        cases = self.passed.setdefault(client, {})
        cases[case] = cases.get(case, True) and passed

    def covers(self, clients: Iterable[Client], cases: Collection[str]) -> bool:
        """Whether every client went through every case that it can be asked for."""
        return all(
            set(self.passed.get(client.name, ())) == set(cases) - set(client.lacks)
            for client in clients
        )

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        content = {"broker": self.broker, "versions": self.versions, "passed": self.passed}
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
        path_of(directory, self.broker).write_text(text)


def path_of(directory: Path, broker: str) -> Path:
    return directory / f"{broker.lower().replace(' ', '-')}.json"


def read(directory: Path, broker: str) -> Results:
    content = json.loads(path_of(directory, broker).read_text())
    return Results(content["broker"], content["versions"], content["passed"])
