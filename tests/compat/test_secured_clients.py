"""Clients over TLS, certificates, passwords and tokens: served, or refused as by Apache Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.compat.clients import CLIENTS
from tests.compat.driver import ClientError, Driver
from tests.compat.report import BROKERS
from tests.compat.secured_brokers import SecuredBroker
from tests.compat.secured_cases import CASES, SECURED_CLIENTS, SecuredCase, is_sampled
from tests.compat.secured_refusals import BY_KAFKA, BY_TIDELOG, expected

_numbers = itertools.count()


# With the parameters of the matrix, so that one driver does both.
@pytest.mark.parametrize("secured_case", CASES)
@pytest.mark.parametrize(
    "peer", ["tidelog", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.long])]
)
@pytest.mark.parametrize(
    "compat_driver",
    [
        pytest.param(client, marks=getattr(pytest.mark, client.marker) if client.marker else ())
        for client in CLIENTS
    ],
    ids=[client.name for client in CLIENTS],
    indirect=True,
)
@pytest.mark.parametrize("compat_brokers", BROKERS[:1], ids=["1-broker"], indirect=True)
def test_a_secured_client_is_served_or_refused_as_by_kafka(
    request: pytest.FixtureRequest,
    compat_driver: Driver,
    secured_brokers: Callable[[str], SecuredBroker],
    secured_case: str,
    peer: str,
) -> None:
    case, broker = CASES[secured_case], secured_brokers(peer)
    topic = f"secured-{next(_numbers)}"
    broker.create_topic(topic)
    if not case.refused:
        _call(compat_driver, broker, case, "produce", topic)
        assert _call(compat_driver, broker, case, "consume", topic) == case.told
        return
    with pytest.raises(ClientError) as refused:
        _call(compat_driver, broker, case, case.refused, topic)
    client = request.node.callspec.params["compat_driver"].name
    assert refused.value.kind == expected(client, secured_case, kafka=peer == "kafka")


def _call(
    driver: Driver, broker: SecuredBroker, case: SecuredCase, step: str, topic: str
) -> object:
    given = {"value": case.told} if step == "produce" else {"group": f"group-{topic}"}
    return driver.call(f"secured_{step}", connection=case.connection(broker), topic=topic, **given)


def test_every_refusal_of_every_client_is_known() -> None:
    refusals = {name for name, case in CASES.items() if case.refused}
    assert {client.name for client in SECURED_CLIENTS} == set(BY_KAFKA)
    for client, known in BY_KAFKA.items():
        assert set(known) == refusals, client
    assert all(set(BY_TIDELOG[client]) <= refusals for client in BY_TIDELOG)


def test_every_client_is_served_and_refused_once_in_each_run() -> None:
    for client in SECURED_CLIENTS:
        sampled = [case for name, case in CASES.items() if is_sampled(client, name)]
        assert {bool(case.refused) for case in sampled} == {True, False}, client.name
