"""The names that the fixtures give their topics."""

from __future__ import annotations

import pytest

from tidelog.testing.pytest_plugin import safe_name
from tidelog.topic_names import topic_name_fault


@pytest.mark.parametrize("test", ["test_größe", "test_x[٣-日本]", "test_a b/c:d", "t" * 300])
def test_any_name_of_a_test_makes_a_legal_topic(test: str) -> None:
    name = safe_name(test)
    assert name.startswith("t")
    assert topic_name_fault(f"{name}-0123abcd") is None
