"""The page of the matrix says what the matrix holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat import report
from tests.compat.cases import CASES, SECTIONS
from tests.compat.clients import CLIENTS
from tests.compat.results import Results, merge, read
from tests.compat.secured_cases import CASES as SECURED_CASES
from tests.compat.secured_cases import SECURED_CLIENTS


def _all_passed(brokers: int = 1) -> Results:
    outcomes = Results("Tidelog", brokers)
    for client in CLIENTS:
        outcomes.versions[client.name] = "1.0"
        for case in CASES:
            if case not in client.lacks:
                outcomes.add(client.name, case, True)
    return outcomes


def _runs() -> dict[int, Results]:
    return {count: _all_passed(count) for count in report.BROKERS}


def _secured() -> Results:
    outcomes = Results(report.SECURED)
    for client in SECURED_CLIENTS:
        for case in SECURED_CASES:
            outcomes.add(client.name, case, True)
    return outcomes


def _page(runs: dict[int, Results] | None = None) -> str:
    return report.render(runs or _runs(), _secured())


def _cells(page: str) -> dict[str, list[str]]:
    """The row of each case by the words that tell it."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    told = {case.told for case in (*CASES.values(), *SECURED_CASES.values())}
    return {row[0]: row[1:] for row in rows if row[0] in told}


def test_the_page_in_the_documentation_is_of_these_cases_and_clients() -> None:
    written = _cells(report.PAGE.read_text())
    expected = _cells(_page())
    assert len(expected) == len(CASES) + len(SECURED_CASES)
    assert written.keys() == expected.keys()
    for told, cells in expected.items():
        runs = [cell == report.NOT_RUN for cell in cells]
        assert [cell == report.NOT_RUN for cell in written[told]] == runs, told


def test_the_page_does_not_depend_on_when_it_is_written() -> None:
    assert _page() == _page()


@pytest.mark.parametrize(("failing", "shown"), [([1], "1"), ([3], "3"), ([1, 3], "1 and 3")])
def test_a_failure_is_shown_with_the_brokers_that_it_is_of(failing: list[int], shown: str) -> None:
    runs = _runs()
    for count in failing:
        runs[count].add(CLIENTS[0].name, "list_topics", False)
        runs[count].add(CLIENTS[0].name, "list_topics", True)
    page = _page(runs)
    row = _cells(page)[CASES["list_topics"].told]
    assert row[0] == f"{report.FAIL} ({shown})"
    assert row[1:] == [report.PASS] * (len(CLIENTS) - 1)
    (counts,) = [line for line in page.splitlines() if line.startswith(f"| {CLIENTS[0].name} |")]
    cases = len(CASES) - len(CLIENTS[0].lacks)
    passed = [cases - (count in failing) for count in report.BROKERS]
    assert counts.strip("| ").split(" | ")[2:5] == list(map(str, [cases, *passed]))


def test_a_failure_with_a_secured_broker_is_shown_and_counted() -> None:
    secured = _secured()
    secured.add(SECURED_CLIENTS[0].name, "scram_512", False)
    page = report.render(_runs(), secured)
    row = _cells(page)[SECURED_CASES["scram_512"].told]
    assert row[0] == report.FAIL and row.count(report.PASS) == len(SECURED_CLIENTS) - 1
    counts = [line for line in page.splitlines() if line.startswith(f"| {CLIENTS[0].name} |")]
    assert counts[0].endswith(f"| {len(SECURED_CASES) - 1} of {len(SECURED_CASES)} |")


@pytest.mark.parametrize("left_out", ["client", "case"])
def test_a_run_with_a_hole_does_not_cover_the_matrix(left_out: str) -> None:
    outcomes = _all_passed()
    assert outcomes.covers(CLIENTS, CASES)
    if left_out == "client":
        del outcomes.passed[CLIENTS[-1].name]
    else:
        del outcomes.passed[CLIENTS[0].name]["list_topics"]
    assert not outcomes.covers(CLIENTS, CASES)


def test_a_client_is_kept_once_it_went_through_all_of_its_cases(tmp_path: Path) -> None:
    first, second = CLIENTS[:2]
    run = _all_passed(3)
    del run.passed[second.name]["list_topics"]
    merge(tmp_path, run, CLIENTS, CASES)
    kept = read(tmp_path, "Tidelog", 3)
    assert kept.covers([first], CASES) and second.name not in kept.passed

    again = Results(
        "Tidelog", 3, {second.name: "2.0"}, {second.name: _all_passed().passed[second.name]}
    )
    merge(tmp_path, again, CLIENTS, CASES)
    assert read(tmp_path, "Tidelog", 3).covers(CLIENTS, CASES)
    assert read(tmp_path, "Tidelog", 3).versions[second.name] == "2.0"
    assert read(tmp_path, "Tidelog", 1).passed == {}


def test_every_case_belongs_to_a_section_of_the_page() -> None:
    assert {case.section for case in CASES.values()} == set(SECTIONS)
    assert len({case.told for case in CASES.values()}) == len(CASES)
