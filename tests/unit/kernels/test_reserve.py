"""Memory that is reserved is a bytearray of the size asked for, in both forms."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.unit.kernels.forms import FORMS


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_reserved_memory_has_the_size_asked_for_and_can_be_written(form: ModuleType) -> None:
    for size in (0, 1, 4096, 1 << 20):
        memory = form.reserve(size)
        assert isinstance(memory, bytearray) and len(memory) == size
        memory[:] = b"x" * size
        assert memory == b"x" * size


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_negative_size_is_refused(form: ModuleType) -> None:
    with pytest.raises(ValueError, match="negative"):
        form.reserve(-1)
