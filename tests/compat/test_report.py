"""The page of the matrix says what the matrix holds."""

from __future__ import annotations

import pytest

from tests.compat import report
from tests.compat.cases import CASES, SECTIONS
from tests.compat.clients import CLIENTS
from tests.compat.results import Results


def _all_passed() -> Results:
    outcomes = Results("Tidelog")
    for client in CLIENTS:
        outcomes.versions[client.name] = "1.0"
        for case in CASES:
            if case not in client.lacks:
                outcomes.add(client.name, case, True)
    return outcomes


def _cells(page: str) -> dict[str, list[str]]:
    """The row of each case by the words that tell it."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    told = {case.told for case in CASES.values()}
    return {row[0]: row[1:] for row in rows if row[0] in told}


def test_the_page_in_the_documentation_is_of_these_cases_and_clients() -> None:
    written = _cells(report.PAGE.read_text())
    expected = _cells(report.render(_all_passed()))
    assert written.keys() == expected.keys()
    for told, cells in expected.items():
        runs = [cell == report.NOT_RUN for cell in cells]
        assert [cell == report.NOT_RUN for cell in written[told]] == runs, told


def test_the_page_does_not_depend_on_when_it_is_written() -> None:
    assert report.render(_all_passed()) == report.render(_all_passed())


def test_a_failure_is_shown_as_one() -> None:
    outcomes = _all_passed()
    outcomes.add(CLIENTS[0].name, "list_topics", False)
    outcomes.add(CLIENTS[0].name, "list_topics", True)
    row = _cells(report.render(outcomes))[CASES["list_topics"].told]
    assert row.count(report.FAIL) == 1 and row[0] == report.FAIL


@pytest.mark.parametrize("left_out", ["client", "case"])
def test_a_run_with_a_hole_does_not_cover_the_matrix(left_out: str) -> None:
    outcomes = _all_passed()
    assert outcomes.covers(CLIENTS, CASES)
    if left_out == "client":
        del outcomes.passed[CLIENTS[-1].name]
    else:
        del outcomes.passed[CLIENTS[0].name]["list_topics"]
    assert not outcomes.covers(CLIENTS, CASES)


def test_every_case_belongs_to_a_section_of_the_page() -> None:
    assert {case.section for case in CASES.values()} == set(SECTIONS)
    assert len({case.told for case in CASES.values()}) == len(CASES)
