"""Every kernel test runs on each form that is there."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.unit.kernels.forms import FORMS
from tests.unit.kernels.guarded import Guarded


@pytest.fixture(params=FORMS)
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return FORMS[request.param]


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    area = Guarded()
    yield area
    area.close()
