"""The runner's own client is secured as the pipeline's file says, and shows no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pipelines.pipeline_files import SMALL, load
from tidelog.pipelines.run.brokers import open_client
from tidelog.pipelines.run.option_check import check_options

_SECURED = (
    '"h:1", security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: runner,'
    ' sasl.password: "env:RUNNERS_PASSWORD"}'
)


def test_a_secret_of_a_pipeline_is_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNERS_PASSWORD", "canary-19")
    pipeline = load(tmp_path, SMALL.replace('"h:1"}', _SECURED))
    check_options(pipeline)
    with open_client(pipeline) as client:
        security = client.cluster.settings.security
    assert security.protocol == "SASL_SSL"
    assert security.sasl is not None
    assert security.sasl.password == "canary-19"
    assert "canary-19" not in repr(pipeline)
