"""Every API has one handler, and the table of them names nothing that does not exist."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import get_args, get_type_hints

import pytest

from tidelog.protocol.apis import APIS, Api
from tidelog.server.context import RequestContext
from tidelog.server.routes import HANDLERS, TOOLS, handler_module, route


def test_every_api_has_a_row_and_every_row_an_api() -> None:
    assert sorted(HANDLERS) == sorted(api.name for api in APIS)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_row_names_a_function_of_a_handler_module(api: Api) -> None:
    handler = route(api.name).handler
    assert callable(handler)
    assert handler.__module__ == handler_module(api.name)
    assert route(api.name) is route(api.name)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_handler_is_given_the_tools_that_it_declares(api: Api) -> None:
    served = route(api.name)
    for function in (served.handler, served.prepare):
        if function is not None:
            hints = get_type_hints(function)
            assert hints["request"] is api.request
            assert hints["context"].__origin__ is RequestContext
            assert get_args(hints["context"]) == (TOOLS[api.name],)


def test_handlers_are_imported_on_first_use_only() -> None:
    program = (
        "import sys; from tidelog.server import routes, dispatch;"
        "loaded = lambda: [m for m in sys.modules if m.startswith('tidelog.server.handlers.')];"
        "before = loaded(); routes.route('InitProducerId');"
        "print(before, loaded())"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[] ['tidelog.server.handlers.init_producer_id']"


def test_a_broker_without_groups_does_not_import_what_they_are_made_of() -> None:
    program = (
        "import sys; from tidelog.server import broker;"
        "print([m for m in sys.modules if m.startswith('tidelog.coordinators.groups.')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    expected = ["tidelog.coordinators.groups.stats", "tidelog.coordinators.groups.coordinator"]
    assert sorted(ast.literal_eval(found.stdout)) == sorted(expected)
