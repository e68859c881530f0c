"""The broker that the matrix is run against, a driver for each client, and the record of results.

The broker is Tidelog unless ``TIDELOG_COMPAT_BROKER=kafka`` asks for Apache Kafka or
``TIDELOG_COMPAT_BOOTSTRAP=host:port`` names one that runs already (one node, automatic topic
creation off). A run over the whole matrix leaves its outcomes in ``build/compat/``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.compat import report, target
from tests.compat.cases import CASES
from tests.compat.cases.registry import Trial
from tests.compat.clients import CLIENTS, Client
from tests.compat.driver import Driver
from tests.compat.results import Results
from tests.compat.wire import Wire

_results = pytest.StashKey[Results]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-compat-table",
        action="store_true",
        help="write docs/compat.md from this run, which has to be over the whole matrix",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_results] = Results(target.name())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the pairs that cannot be: what a client has no way to do is not a test."""
    items[:] = [item for item in items if not _is_lacking(item)]


def _is_lacking(item: pytest.Item) -> bool:
    pair = _pair(item)
    return pair is not None and pair[1] in pair[0].lacks


def _pair(item: pytest.Item) -> tuple[Client, str] | None:
    callspec = getattr(item, "callspec", None)
    if callspec is None or "compat_driver" not in callspec.params:
        return None
    return callspec.params["compat_driver"], callspec.params["case"].name


@pytest.fixture(scope="session")
def compat_broker() -> Iterator[str]:
    """The bootstrap servers of the broker under test."""
    with target.broker() as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture(scope="session")
def compat_wire(compat_broker: str) -> Iterator[Wire]:
    wire = Wire(compat_broker)
    wire.connect()
    yield wire
    wire.close()


@pytest.fixture(scope="session")
def compat_driver(request: pytest.FixtureRequest, compat_broker: str) -> Iterator[Driver]:
    """The driver of one client for all its cases; the parameter is the client."""
    client: Client = request.param
    driver = Driver(client.command(), compat_broker)
    try:
        driver.start()
        request.config.stash[_results].versions[client.name] = driver.version
        yield driver
    finally:
        driver.close()


@pytest.fixture
def trial(
    request: pytest.FixtureRequest, compat_driver: Driver, compat_wire: Wire
) -> Iterator[Trial]:
    pair = _pair(request.node)
    assert pair is not None
    made = Trial(pair[0], compat_driver, compat_wire)
    yield made
    made.clean_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (pair := _pair(item)) is not None:
        client, case = pair
        item.config.stash[_results].add(client.name, case, report.passed)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    results = session.config.stash[_results]
    covered = results.covers(CLIENTS, CASES)
    if covered:
        results.write(report.RESULTS_DIRECTORY)
    if session.config.getoption("--write-compat-table", default=False):
        if not covered or results.broker != target.TIDELOG:
            raise pytest.UsageError("docs/compat.md needs every client, with Tidelog")
        report.PAGE.write_text(report.render(results))
