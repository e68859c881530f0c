"""What holds for every test: toolchain markers, the leak check, Hypothesis profiles.

Toolchain markers (``java``, ``spark``, ``go``, ``node``, ``kcat``, ``root``): a test whose
toolchain is not there is deselected and listed as "not run" at the end, with the reason; with
``CI=true`` the run then fails, so that a continuous build never goes green by trying less.

The leak check: a test that passed must leave no thread, asyncio task, child process or file
descriptor behind. It is a function-scoped autouse fixture, so its baseline is taken *after* the
session, module and class fixtures of the test were set up and its check runs after every
function-scoped fixture was torn down: what a wider fixture holds is not a leak. A wider fixture
that keeps opening things while tests use it (a broker in this process) goes on the written list
`LEAK_EXCEPTIONS`.

Secrets: a test during which a password is logged or otherwise shown fails (`tests/canaries.py`).
"""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, settings

from scripts.guardian import guard
from tests.canaries import Canaries, install

# What tests start ends with this process, even if that is killed.
guard()

settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", parent=settings.get_profile("local"), derandomize=True, print_blob=True
)
IN_LONG_TIER = bool(os.environ.get("TIDELOG_LONG"))
IN_CI = os.environ.get("CI", "").lower() == "true"
settings.load_profile("ci" if IN_CI else "local")


# ---- toolchains ---------------------------------------------------------------------------


def _programs(*names: str) -> str | None:
    missing = [name for name in names if shutil.which(name) is None]
    return f"{' and '.join(missing)} not found" if missing else None


def _at_least(oldest: int, command: list[str], pattern: str) -> str | None:
    """Why the version that `command` prints will not do: the first group of `pattern` counts."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    found = re.search(pattern, done.stdout)
    if found is None:
        return f"{' '.join(command)} says no version"
    return None if int(found[1]) >= oldest else f"{command[0]} is older than {oldest}"


def _java() -> str | None:
    return _programs("java", "mvn") or _at_least(17, ["java", "-version"], r'version "(\d+)')


def _spark() -> str | None:
    """The Java that the pipelines would use, from PyPI where the system has none."""
    from tidelog.spark.launch.java import JavaNotFoundError, find_java

    try:
        find_java(os.environ)
    except JavaNotFoundError as error:
        return str(error).splitlines()[0]
    return None


def _go() -> str | None:
    """From 1.21 on it fetches the newer toolchain that a module asks for by itself."""
    return _programs("go") or _at_least(21, ["go", "version"], r"go1\.(\d+)")


def _node() -> str | None:
    return _programs("node", "npm") or _at_least(18, ["node", "--version"], r"v(\d+)")


def _may_mount() -> str | None:
    """Root alone is not enough: a container may run as root without the right to mount."""
    if os.geteuid() != 0:
        return "not run as root"
    sys_admin_bit = 21
    try:
        with open("/proc/self/status") as status:
            effective = next(line.split()[1] for line in status if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return "no Linux capabilities"
    return None if int(effective, 16) >> sys_admin_bit & 1 else "root without CAP_SYS_ADMIN"


# Marker -> why its tests cannot run here, or None when they can.
TOOLCHAINS: dict[str, Callable[[], str | None]] = {
    "java": _java,
    "go": _go,
    "node": _node,
    "kcat": lambda: _programs("kcat"),
    "root": _may_mount,
    "spark": _spark,
}


@dataclass
class NotRun:
    """The tests that no toolchain was found for, by reason, for the end of the run."""

    tests_by_reason: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, node_id: str) -> None:
        self.tests_by_reason.setdefault(reason, []).append(node_id)

    @property
    def count(self) -> int:
        return sum(len(tests) for tests in self.tests_by_reason.values())


_not_run = pytest.StashKey[NotRun]()
_call_passed = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_not_run] = NotRun()
    # A shell starts what runs in the background with Ctrl-C ignored, and so are our children then:
    # tests that interrupt a program must be able to.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # libuv opens one pair of pipes per process with its first loop and keeps them: have them
    # before the first baseline is taken.
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.new_event_loop().close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what cannot run; last, so that what the caller left out is not listed."""
    not_run = config.stash[_not_run]
    if not IN_LONG_TIER:
        long = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if not item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
    used = {mark.name for item in items for mark in item.iter_markers()}
    faults = {name: fault for name in TOOLCHAINS.keys() & used if (fault := TOOLCHAINS[name]())}
    kept, dropped = [], []
    for item in items:
        marker = next((name for name in faults if item.get_closest_marker(name)), None)
        if marker is None:
            kept.append(item)
        else:
            dropped.append(item)
            not_run.add(f"{marker}: {faults[marker]}", item.nodeid)
    if dropped:
        items[:] = kept
        config.hook.pytest_deselected(items=dropped)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    not_run = config.stash[_not_run]
    if not not_run.count:
        return
    terminalreporter.section(f"not run: {not_run.count} tests")
    for reason, node_ids in sorted(not_run.tests_by_reason.items()):
        for function, count in sorted(Counter(name.split("[")[0] for name in node_ids).items()):
            variants = f" ({count} variants)" if count > 1 else ""
            terminalreporter.line(f"NOT RUN {function}{variants}: {reason}")
    if IN_CI:
        terminalreporter.line("CI=true: a test that is not run is a failure", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    passed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if IN_CI and passed and session.config.stash[_not_run].count:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


# ---- leaks --------------------------------------------------------------------------------

THREAD, TASK, CHILD, DESCRIPTOR = "thread", "asyncio task", "child process", "file descriptor"
SETTLE_SECONDS = 1.0


@dataclass(frozen=True)
class LeakException:
    """Tests that use `fixture`, or whose id begins with `node_id`, may leave these kinds behind."""

    kinds: frozenset[str]
    reason: str
    fixture: str = ""
    node_id: str = ""

    def covers(self, item: pytest.Item) -> bool:
        if self.fixture:
            return self.fixture in getattr(item, "fixturenames", ())
        return item.nodeid.startswith(self.node_id)


LEAK_EXCEPTIONS = (
    LeakException(
        kinds=frozenset({THREAD, DESCRIPTOR}),
        reason="one broker in this process serves the whole session: it opens segment files,"
        " accepts connections and starts its offload threads while tests use it",
        fixture="tidelog_broker",
    ),
    LeakException(
        kinds=frozenset({THREAD}),
        reason="one broker in this process serves the whole module: it starts its offload threads"
        " when a test first needs them",
        node_id="tests/e2e/test_worst_requests.py",
    ),
    LeakException(
        kinds=frozenset({DESCRIPTOR}),
        reason="three brokers in this process serve a whole module: they write checkpoints and"
        " connect to each other while tests use them",
        fixture="racks",
    ),
    LeakException(
        kinds=frozenset({CHILD}),
        reason="three broker processes serve a whole module: those that a test kills are started"
        " again for the next one",
        node_id="tests/chaos/test_scripted.py",
    ),
    LeakException(
        kinds=frozenset({CHILD, THREAD, DESCRIPTOR}),
        reason="brokers behind proxies serve a whole module: clients and brokers connect through"
        " them in their own time, and a broker that a test kills is started again",
        node_id="tests/chaos/test_delayed_transactions.py",
    ),
    LeakException(
        kinds=frozenset({CHILD, DESCRIPTOR}),
        reason="a client's driver that had to be killed is started again by its next case, and"
        " then lives for the client's other cases",
        fixture="compat_driver",
    ),
    LeakException(
        kinds=frozenset({THREAD, DESCRIPTOR}),
        reason="one Spark session serves the whole run: it opens sockets to its JVM and callback"
        " threads while tests use it",
        fixture="spark",
    ),
)

# Helpers that the standard library starts once per process and keeps until it ends.
_STANDARD_LIBRARY_CHILDREN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_PROCESS_WIDE_FILES = ("/dev/urandom", "/dev/null")

# Tasks that were still pending when `asyncio.run` returned, told by the wrapper below.
_pending_tasks: list[str] = []


def _children() -> dict[int, str]:
    """Direct children by process id; one that ended and was not waited for counts too."""
    found = {}
    for child in psutil.Process().children():
        try:
            command = " ".join(child.cmdline()) or child.name()
        except psutil.Error:
            command = "gone or not reaped"
        if not any(helper in command for helper in _STANDARD_LIBRARY_CHILDREN):
            found[child.pid] = command[:120]
    return found


def _has_children() -> bool:
    """A cheap look before psutil walks all of /proc: most tests start no process."""
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children") as children:
                if children.read().strip():
                    return True
    except OSError:
        return True
    return False


def _descriptors() -> set[str]:
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    found = set()
    for name in os.listdir(directory):
        try:
            target = os.readlink(f"{directory}/{name}") if directory != "/dev/fd" else ""
        except OSError:
            continue  # the descriptor of the listing itself
        if target not in _PROCESS_WIDE_FILES:
            found.add(f"{name} {target}")
    return found


@dataclass
class Resources:
    """What this process holds at one moment."""

    threads: set[threading.Thread]
    children: dict[int, str]
    descriptors: set[str]

    @classmethod
    def now(cls) -> "Resources":
        children = _children() if _has_children() else {}
        return cls(set(threading.enumerate()), children, _descriptors())

    def leaked_since(self, before: "Resources") -> list[tuple[str, str]]:
        new = self.threads - before.threads
        if any(thread.name == "tidelog-broker" for thread in before.threads):
            # The session's broker starts its offload threads when it first needs them.
            new = {thread for thread in new if not thread.name.startswith("broker_")}
        leaked = [(THREAD, thread.name) for thread in new]
        leaked += [
            (CHILD, f"{pid} {command}")
            for pid, command in self.children.items()
            if pid not in before.children
        ]
        # One descriptor exchanged for another is a reconnect of a wider fixture, not a leak.
        if len(self.descriptors) > len(before.descriptors):
            opened = self.descriptors - before.descriptors
            if any(thread.name == "tidelog-broker" for thread in before.threads):
                # It flushes its files in its own time, whatever test is running.
                opened = {name for name in opened if "/tidelog-" not in name}
            leaked += [(DESCRIPTOR, name) for name in opened]
        return sorted(leaked)


def _settle(before: Resources, allowed: frozenset[str]) -> list[tuple[str, str]]:
    """What is still there after a second: closing is often finished by another thread."""
    deadline = time.monotonic() + SETTLE_SECONDS
    pause_seconds = 0.001
    while True:
        leaked = [leak for leak in Resources.now().leaked_since(before) if leak[0] not in allowed]
        if not leaked or time.monotonic() > deadline:
            return leaked
        gc.collect()
        multiprocessing.active_children()  # reaps those that ended
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, 0.1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_call_passed] = report.passed
    return report


@pytest.fixture(scope="session", autouse=True)
def _watch_asyncio_runners() -> Iterator[None]:
    """`asyncio.run` cancels what is left in silence: look just before it does.

    Every runner, uvloop's included, ends in this one function; a task that ends by itself within
    the settling time (a connection handler that is about to see its peer's end) is no leak.
    """
    cancel_all_tasks = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]

    def look_then_cancel(loop: asyncio.AbstractEventLoop) -> None:
        pending = asyncio.all_tasks(loop)
        if pending:
            _, pending = loop.run_until_complete(asyncio.wait(pending, timeout=SETTLE_SECONDS))
            _pending_tasks.extend(repr(task) for task in pending)
        cancel_all_tasks(loop)

    asyncio.runners._cancel_all_tasks = look_then_cancel  # type: ignore[attr-defined]
    yield
    asyncio.runners._cancel_all_tasks = cancel_all_tasks  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest, _watch_asyncio_runners: None) -> Iterator[None]:
    """Fail a test that passed and left something behind; one that failed has its own story."""
    item = request.node
    before = Resources.now()
    _pending_tasks.clear()
    yield
    if not item.stash.get(_call_passed, False):
        return
    exceptions = [entry for entry in LEAK_EXCEPTIONS if entry.covers(item)]
    allowed: frozenset[str] = frozenset().union(*(entry.kinds for entry in exceptions))
    leaked = _settle(before, allowed)
    if TASK not in allowed:
        leaked += [(TASK, name) for name in _pending_tasks]
    if leaked:
        lines = "".join(f"\n  {kind}: {name}" for kind, name in leaked)
        pytest.fail(f"the test left behind:{lines}", pytrace=False)


# ---- secrets ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def canaries() -> Iterator[Canaries]:
    """The secrets of the whole run."""
    watching = Canaries()
    end = install(watching)
    yield watching
    end()


@pytest.fixture(autouse=True)
def _no_secret_is_shown(canaries: Canaries) -> Iterator[None]:
    yield
    leaks = canaries.take_leaks()
    if leaks:
        pytest.fail("a secret was shown:\n  " + "\n  ".join(leaks[:10]), pytrace=False)
