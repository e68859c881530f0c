"""The matrix: every client through every case that it can be asked for."""

from __future__ import annotations

import pytest

from tests.compat.cases import CASES, SAMPLE, Case, Trial
from tests.compat.clients import CLIENTS
from tests.compat.report import BROKERS


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize(
    "compat_driver",
    [
        pytest.param(client, marks=getattr(pytest.mark, client.marker) if client.marker else ())
        for client in CLIENTS
    ],
    ids=[client.name for client in CLIENTS],
    indirect=True,
)
@pytest.mark.parametrize(
    "compat_brokers", BROKERS, ids=[f"{count}-broker" for count in BROKERS], indirect=True
)
def test_client_does_what_it_does_with_kafka(trial: Trial, case: Case) -> None:
    case.run(trial)


def test_every_gap_of_a_client_names_a_case() -> None:
    unknown = {
        (client.name, case) for client in CLIENTS for case in client.lacks if case not in CASES
    }
    assert unknown == set()


def test_the_sample_with_three_brokers_is_of_these_cases() -> None:
    assert set(SAMPLE) <= set(CASES)


def test_every_client_is_named_once() -> None:
    names = [client.name for client in CLIENTS]
    assert len(set(names)) == len(names) == 8
