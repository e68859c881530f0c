"""The brokers that the matrix is run against, a driver for each client, and the record of results.

The matrix is run against one broker and against three, where every topic has three replicas. With
three only a sample is run, except in the long tier. The brokers are Tidelog's unless
``TIDELOG_COMPAT_BROKER=kafka`` asks for Apache Kafka or ``TIDELOG_COMPAT_BOOTSTRAP=host:port``
names one that runs already (one node, automatic topic creation off). What clients that went through
all their cases did is kept in ``build/compat/``, so the page can be written from several runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from typing import NamedTuple

import pytest

from tests.compat import report, target
from tests.compat.cases import CASES, SAMPLE
from tests.compat.cases.registry import Trial
from tests.compat.clients import CLIENTS, Client
from tests.compat.driver import Driver
from tests.compat.results import Results, merge
from tests.compat.secured_brokers import SecuredBroker, secured_broker
from tests.compat.secured_cases import CASES as SECURED_CASES
from tests.compat.secured_cases import SECURED_CLIENTS, is_sampled
from tests.compat.wire import Wire

_results = pytest.StashKey[dict[int, Results]]()
_secured_results = pytest.StashKey[Results]()


class Cell(NamedTuple):
    """What one test of the matrix is about."""

    client: Client
    case: str
    brokers: int
    is_ours: bool = True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-compat-table",
        action="store_true",
        help="write docs/compat.md from this run, which has to be over the whole matrix",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_results] = {count: Results(target.name(), count) for count in report.BROKERS}
    config.stash[_secured_results] = Results(report.SECURED)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the cells that cannot be: what a client has no way to do is not a test."""
    items[:] = [item for item in items if not _is_lacking(item)]
    for item in items:
        cell, secured = _cell(item), _secured_cell(item)
        if cell is not None and cell.brokers > 1 and cell.case not in SAMPLE:
            item.add_marker(pytest.mark.long)
        if secured is not None and not is_sampled(secured.client, secured.case):
            item.add_marker(pytest.mark.long)


def _is_lacking(item: pytest.Item) -> bool:
    cell, secured = _cell(item), _secured_cell(item)
    if secured is not None:
        return secured.client not in SECURED_CLIENTS
    return cell is not None and cell.case in cell.client.lacks


def _cell(item: pytest.Item) -> Cell | None:
    callspec = getattr(item, "callspec", None)
    if callspec is None or "case" not in callspec.params:
        return None
    chosen = callspec.params
    return Cell(chosen["compat_driver"], chosen["case"].name, chosen["compat_brokers"])


def _secured_cell(item: pytest.Item) -> Cell | None:
    callspec = getattr(item, "callspec", None)
    if callspec is None or "secured_case" not in callspec.params:
        return None
    chosen = callspec.params
    is_ours = chosen["peer"] == "tidelog"
    return Cell(chosen["compat_driver"], chosen["secured_case"], 1, is_ours)


@pytest.fixture(scope="session")
def compat_brokers(request: pytest.FixtureRequest) -> Iterator[target.Brokers]:
    """The brokers under test; the parameter is how many."""
    with target.brokers(request.param) as bootstrap_servers:
        yield target.Brokers(request.param, bootstrap_servers)


@pytest.fixture(scope="session")
def compat_wire(compat_brokers: target.Brokers) -> Iterator[Wire]:
    wire = Wire(compat_brokers.bootstrap_servers, compat_brokers.count)
    wire.connect()
    yield wire
    wire.close()


@pytest.fixture(scope="session")
def compat_driver(
    request: pytest.FixtureRequest, compat_brokers: target.Brokers
) -> Iterator[Driver]:
    """The driver of one client for all its cases; the parameter is the client."""
    client: Client = request.param
    driver = Driver(client.command(), compat_brokers.bootstrap_servers, compat_brokers.count)
    try:
        driver.start()
        results = request.config.stash[_results][compat_brokers.count]
        results.versions[client.name] = driver.version
        yield driver
    finally:
        driver.close()


@pytest.fixture(scope="session")
def secured_brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], SecuredBroker]]:
    """A secured broker of each kind, "tidelog" or "kafka", from when it is first asked for."""
    with ExitStack() as running:

        @cache
        def started(peer: str) -> SecuredBroker:
            directory = tmp_path_factory.mktemp(f"secured-{peer}")
            return running.enter_context(secured_broker(directory, kafka=peer == "kafka"))

        yield started


@pytest.fixture
def trial(
    request: pytest.FixtureRequest, compat_driver: Driver, compat_wire: Wire
) -> Iterator[Trial]:
    cell = _cell(request.node)
    assert cell is not None
    made = Trial(cell.client, compat_driver, compat_wire)
    yield made
    made.clean_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (cell := _cell(item)) is not None:
        results = item.config.stash[_results][cell.brokers]
        results.add(cell.client.name, cell.case, report.passed)
    elif (secured := _secured_cell(item)) is not None and secured.is_ours:
        item.config.stash[_secured_results].add(secured.client.name, secured.case, report.passed)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    runs = session.config.stash[_results]
    for results in runs.values():
        merge(report.RESULTS_DIRECTORY, results, CLIENTS, CASES)
    secured = session.config.stash[_secured_results]
    secured.versions = dict(runs[1].versions)
    merge(report.RESULTS_DIRECTORY, secured, SECURED_CLIENTS, SECURED_CASES)
    if session.config.getoption("--write-compat-table", default=False):
        if target.name() != target.TIDELOG:
            raise pytest.UsageError("docs/compat.md is about Tidelog")
        is_whole = secured.covers(SECURED_CLIENTS, SECURED_CASES)
        if not is_whole or not all(run.covers(CLIENTS, CASES) for run in runs.values()):
            raise pytest.UsageError("docs/compat.md needs every client: TIDELOG_LONG=1")
        report.PAGE.write_text(report.render(runs, secured))
