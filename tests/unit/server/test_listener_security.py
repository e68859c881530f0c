"""What a listener does when its settings or files change while it serves."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.unit.security.handshakes import shake_hands
from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.security.tls import TlsSettings, client_context
from tidelog.server.secured_listener import SecuredListener, check_security
from tidelog.testing.certificates import Authority

AUTHORITY = Authority()
LOCATION = "listener.name.ssl.ssl.keystore.location"


def secured(directory: Path) -> tuple[SecuredListener, BrokerConfig]:
    path = AUTHORITY.issue("CN=broker,O=before").write(directory / "broker.pem")
    config = BrokerConfig({"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": path})
    return SecuredListener(config.listeners.opened[0], config), config


def shown(security: SecuredListener) -> str:
    """The organization in the certificate that a new connection is shown."""
    context = security.tls()
    assert context is not None
    client = client_context(TlsSettings(truststore_certificates=AUTHORITY.pem))
    certificate = shake_hands(context, client)[1].getpeercert()
    assert certificate is not None
    return str(dict(part[0] for part in certificate["subject"])["organizationName"])


def test_x4_a_file_that_is_replaced_is_used_and_one_that_is_broken_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    security, config = secured(tmp_path)
    first = security.tls()
    security.refresh(config)
    assert security.tls() is first, "nothing has changed"
    AUTHORITY.issue("CN=broker,O=after").write(tmp_path / "broker.pem")
    security.refresh(config)
    assert shown(security) == "after"
    (tmp_path / "broker.pem").write_text("half a file")
    for _ in range(3):
        security.refresh(config)
    assert shown(security) == "after"
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == 1, "it is said once"
    AUTHORITY.issue("CN=broker,O=third").write(tmp_path / "broker.pem")
    security.refresh(config)
    assert shown(security) == "third"


def test_x4_settings_that_are_altered_are_used_and_bad_ones_are_not(tmp_path: Path) -> None:
    security, config = secured(tmp_path)
    other = AUTHORITY.issue("CN=broker,O=altered").write(tmp_path / "other.pem")
    security.refresh(config.with_dynamic({LOCATION: other}, {}))
    assert shown(security) == "altered"
    security.refresh(config.with_dynamic({LOCATION: "/nowhere"}, {}))
    assert shown(security) == "altered"
    security.refresh(config)
    assert shown(security) == "before"


def test_settings_are_tried_before_they_are_taken(tmp_path: Path) -> None:
    _, config = secured(tmp_path)
    check_security(config)
    with pytest.raises(ConfigError, match=r"listener SSL: .*: /nowhere: No such file"):
        check_security(config.with_dynamic({LOCATION: "/nowhere"}, {}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ssl.client.auth": "requested"}, "needs ssl.client.auth=required"),
        ({"ssl.broker.principals": "User:CN=b"}, "does not name User:CN=broker,"),
        ({"ssl.broker.principals": "broker"}, "'broker' is not a principal"),
        ({"listeners": "SASL_SSL://127.0.0.1:0"}, None),
        ({"ssl.principal.mapping.rules": "RULE:^CN=(x)$/$1/"}, "fits the certificate of CN=broker"),
        (
            {
                "listeners": "SASL_SSL://127.0.0.1:0",
                "listener.name.sasl_ssl.ssl.broker.principals": "User:CN=broker",
            },
            "is for SSL listeners",
        ),
    ],
)
def test_brokers_that_could_not_know_each_other_by_certificates_do_not_start(
    tmp_path: Path, changes: dict[str, str], reason: str | None
) -> None:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": AUTHORITY.issue("CN=broker").write(tmp_path / "broker.pem"),
        "ssl.truststore.location": AUTHORITY.write(tmp_path / "ca.pem"),
        "ssl.client.auth": "required",
        "ssl.broker.principals": "User:CN=broker",
    }
    if reason is None:
        check_security(BrokerConfig(settings | changes))
        return
    with pytest.raises(ConfigError, match=reason):
        check_security(BrokerConfig(settings | changes))
    check_security(BrokerConfig(settings))
