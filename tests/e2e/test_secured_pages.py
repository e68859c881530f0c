"""The status pages behind TLS and passwords."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest

from tidelog.errors import ConfigError
from tidelog.testing import Broker
from tidelog.testing.certificates import Authority

USERS = "scraper:pass:word,other:second"


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


def get(
    port: int | None, path: str, headers: dict[str, str] | None = None, authority: str = ""
) -> tuple[int, str, str]:
    """The status, the challenge and the text of a page."""
    assert port is not None
    connection: HTTPConnection = HTTPConnection("127.0.0.1", port, timeout=10)
    if authority:
        context = ssl.create_default_context(cafile=authority)
        connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("WWW-Authenticate", ""), answer.read().decode()
    finally:
        connection.close()


def test_pages_ask_for_a_password_and_health_does_not(tmp_path: Path) -> None:
    settings = {"metrics.listener": "127.0.0.1:0", "metrics.users": USERS}
    with Broker(data_dir=tmp_path, settings=settings) as broker:
        port = broker.metrics_port
        status, challenge, text = get(port, "/metrics")
        assert (status, challenge) == (401, 'Basic realm="tidelog"') and "tidelog_" not in text
        for headers in (
            basic("scraper", "pass"),
            basic("scraper", "second"),
            basic("nobody", ""),
            basic("", ""),
            {"Authorization": "Basic ???"},
            {"Authorization": "Bearer x"},
        ):
            assert get(port, "/metrics", headers)[0] == 401, headers
        for headers in (basic("scraper", "pass:word"), basic("other", "second")):
            status, _, text = get(port, "/metrics", headers)
            assert status == 200 and "tidelog_audit_failing 0" in text
        assert get(port, "/nowhere")[0] == 401
        assert get(port, "/healthz")[0] == get(port, "/readyz")[0] == 200
    (log,) = (tmp_path / "audit").iterdir()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    logins = [(each["outcome"], each.get("principal")) for each in lines]
    assert logins[0] == ("failed", None) and ("ok", "User:scraper") in logins
    assert "pass:word" not in log.read_text()


def test_health_may_be_closed_too(tmp_path: Path) -> None:
    settings = {
        "metrics.listener": "127.0.0.1:0",
        "metrics.users": USERS,
        "metrics.health.open": "false",
    }
    with Broker(data_dir=tmp_path, settings=settings) as broker:
        assert get(broker.metrics_port, "/healthz")[0] == 401
        assert get(broker.metrics_port, "/readyz", basic("other", "second"))[0] == 200


def test_pages_over_tls_take_a_new_certificate_while_they_run(tmp_path: Path) -> None:
    first, second = Authority(), Authority()
    key = tmp_path / "key.pem"
    first.issue().write(key)
    settings = {
        "metrics.listener": "127.0.0.1:0",
        "metrics.security.protocol": "SSL",
        "listener.name.metrics.ssl.keystore.location": str(key),
        "metrics.users": USERS,
    }
    with Broker(data_dir=tmp_path / "data", settings=settings) as broker:
        port, right = broker.metrics_port, basic("other", "second")
        old, new = first.write(tmp_path / "old.pem"), second.write(tmp_path / "new.pem")
        assert get(port, "/metrics", right, old)[0] == 200
        assert get(port, "/metrics", None, old)[0] == 401
        with pytest.raises(ssl.SSLCertVerificationError):
            get(port, "/metrics", right, new)
        with pytest.raises(OSError):
            get(port, "/metrics", right)
        second.issue().write(key)
        assert get(port, "/metrics", right, new)[0] == 200


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metrics.users": "alice"}, "not NAME:PASSWORD"),
        ({"metrics.users": "a:CANARY,a:CANARY"}, "a is there twice"),
        ({"metrics.users": "a:CANARY", "metrics.listener": "0.0.0.0:0"}, "in the clear"),
        ({"metrics.security.protocol": "SSL"}, "listener metrics: a TLS listener needs a"),
    ],
)
def test_settings_that_do_not_work_are_refused(
    settings: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        Broker(data_dir=tmp_path, settings={"metrics.listener": "127.0.0.1:0", **settings}).start()
    assert said in str(caught.value) and "CANARY" not in str(caught.value)
