"""Every kernel test runs on each form that is there."""

from types import ModuleType

import pytest

from tests.unit.kernels.forms import FORMS


@pytest.fixture(params=FORMS)
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return FORMS[request.param]
