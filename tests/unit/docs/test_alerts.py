"""The alert rules are about metrics that there are, and each says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.server.clusters import parts, simulate, start_all
from tidelog.server.cluster_status import ClusterStatus
from tidelog.server.pages import StatusPages
from tidelog.testing.simulation.machines import World

ROOT = Path(__file__).parents[3]
RULES: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "deploy" / "prometheus-alerts.yml").read_text(encoding="utf-8")
)["groups"][0]["rules"]


@pytest.fixture(scope="module")
def names() -> set[str]:
    """The metrics of a broker."""

    async def main(world: World) -> set[str]:
        (machine,) = await start_all(world, 1)
        its = parts(machine)
        status = ClusterStatus(
            its.membership, its.metadata, its.replicas, its.fetchers, machine.clock
        )
        pages = StatusPages(
            its.frontend.metrics,
            its.replicas,
            its.mending,
            its.groups,
            its.fetch_sessions,
            its.frontend.memory,
            status,
            its.transactions,
            its.requests.audit,
            lambda: True,
        )
        _, text = pages.metrics()
        return {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}

    return simulate(main)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_about_metrics_of_the_broker_and_helps(
    rule: dict[str, Any], names: set[str]
) -> None:
    used = set(re.findall(r"tidelog_\w+", rule["expr"]))
    assert used and used <= names
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"] and rule["annotations"]["action"]


def test_the_metrics_that_the_page_explains_are_there(names: set[str]) -> None:
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`(tidelog_\w+)", page))
    assert len(explained) > 20
    assert explained <= names
