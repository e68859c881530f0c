"""The names that the fixtures give their topics."""

from __future__ import annotations

import sys

import pytest

from tidelog.testing.installed_client import installed_client
from tidelog.testing.pytest_plugin import safe_name
from tidelog.topic_names import topic_name_fault


@pytest.mark.parametrize("test", ["test_größe", "test_x[٣-日本]", "test_a b/c:d", "t" * 300])
def test_any_name_of_a_test_makes_a_legal_topic(test: str) -> None:
    name = safe_name(test)
    assert name.startswith("t")
    assert topic_name_fault(f"{name}-0123abcd") is None


# kafka-python reads its version by a deprecated function.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_first_installed_client_is_used_unless_one_is_named() -> None:
    assert type(installed_client()).__name__ == "_ConfluentKafka"
    assert type(installed_client("kafka-python")).__name__ == "_KafkaPython"
    with pytest.raises(ValueError, match="give one of confluent-kafka, kafka-python"):
        installed_client("librdkafka")


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("confluent_kafka", "kafka"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match="need one of confluent-kafka, kafka-python"):
        installed_client()
