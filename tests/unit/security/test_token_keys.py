"""Where the keys of tokens come from: when they are fetched, and from where they are not."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.unit.security.test_oauth import JWKS
from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.host.https import fetch
from tidelog.security.token_keys import FetchedKeys
from tidelog.server.secured_listener import SecuredListener
from tidelog.server.tokens import Surroundings
from tidelog.testing.certificates import Authority
from tidelog.testing.virtual_loop import virtual_host, virtual_time

AUTHORITY = Authority()


class Handler(BaseHTTPRequestHandler):
    """Answers by the path."""

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/jwks")
            self.end_headers()
            return
        self.send_response(200 if self.path in ("/jwks", "/large") else 404)
        self.end_headers()
        self.wfile.write(JWKS.encode() if self.path == "/jwks" else b" " * ((1 << 20) + 1))

    def log_message(self, *_: object) -> None:
        pass


class QuietServer(HTTPServer):
    """Prints nothing where a client refuses its certificate."""

    def handle_error(self, *_: object) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    server = QuietServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(AUTHORITY.issue().write(tmp_path / "server.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=AUTHORITY.pem)


def test_keys_are_fetched_over_https(address: str) -> None:
    assert fetch(f"{address}/jwks", trusting()) == JWKS


@pytest.mark.parametrize("path", ["/moved", "/large", "/missing"])
def test_x12_a_redirect_or_an_endless_answer_is_refused(address: str, path: str) -> None:
    with pytest.raises(OSError, match=f"{path} "):
        fetch(address + path, trusting())


def test_x12_an_address_whose_certificate_is_not_trusted_is_refused(address: str) -> None:
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(f"{address}/jwks")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1/jwks",
        "ftp://127.0.0.1/jwks",
        "//127.0.0.1/jwks",
        "jar:https://127.0.0.1!/jwks",
    ],
)
def test_x12_no_other_address_than_https_is_asked(url: str) -> None:
    with pytest.raises(OSError, match="not https"):
        fetch(url)
    with pytest.raises(ConfigError, match="only https"):
        BrokerConfig({"sasl.oauthbearer.jwks.endpoint.url": url})


class Source:
    """An address that answers what the test says."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: str | OSError = JWKS

    async def __call__(self) -> str:
        self.asked += 1
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


@virtual_time
async def test_keys_are_fetched_again_when_they_are_old() -> None:
    source = Source()
    keys = FetchedKeys(source, 3600, virtual_host().clock)
    for _ in range(5):
        keys.refresh()
        await keys.settled()
        await asyncio.sleep(100)
    assert source.asked == 1 and keys.find("rsa") is not None
    await asyncio.sleep(3600)
    keys.refresh()
    await keys.settled()
    assert source.asked == 2


@virtual_time
async def test_x12_tokens_with_unknown_keys_cannot_make_the_broker_ask_without_end() -> None:
    source = Source()
    keys = FetchedKeys(source, 3600, virtual_host().clock)
    for number in range(1_000):
        assert keys.find(f"unknown {number}") is None
        await keys.settled()
        await asyncio.sleep(0.1)
    assert source.asked == 10, "100 seconds"


@virtual_time
async def test_what_was_fetched_stays_while_the_address_is_away() -> None:
    source = Source()
    keys = FetchedKeys(source, 60, virtual_host().clock)
    keys.refresh()
    await keys.settled()
    for answer in (OSError("away"), "no JWKS"):
        source.answer = answer
        await asyncio.sleep(100)
        keys.refresh()
        await keys.settled()
        assert keys.find("rsa") is not None
    assert source.asked == 3


SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.expected.issuer": "i",
    "sasl.oauthbearer.expected.audience": "a",
}


def security_of(settings: dict[str, str]) -> SecuredListener:
    config, host = BrokerConfig(settings), virtual_host()
    return SecuredListener(
        config.listeners.opened[0], config, Surroundings(host.clock, host.offload)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "needs the keys that sign tokens"),
        ({"sasl.oauthbearer.jwks.file": "/nowhere.json"}, r"/nowhere\.json: No such file"),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "https://h", "sasl.oauthbearer.jwks.file": "f"},
            "both set",
        ),
        (
            {
                "sasl.oauthbearer.jwks.endpoint.url": "https://h",
                "sasl.oauthbearer.expected.audience": "",
            },
            r"needs .*expected\.audience",
        ),
    ],
)
def test_settings_that_would_take_any_token_are_refused(
    changes: dict[str, str], message: str
) -> None:
    @virtual_time
    async def run() -> None:
        with pytest.raises(ConfigError, match=message):
            security_of(SETTINGS | changes)

    run()


@virtual_time
async def test_x12_unsigned_tokens_must_be_asked_for_by_name() -> None:
    asked = security_of(SETTINGS | {"sasl.oauthbearer.unsecured.allowed": "true"})
    assert asked.tokens is not None


def test_a_file_of_keys_is_read_again_when_it_changes(tmp_path: Path) -> None:
    @virtual_time
    async def run() -> None:
        file = tmp_path / "jwks.json"
        file.write_text(JWKS)
        security = security_of(SETTINGS | {"sasl.oauthbearer.jwks.file": str(file)})
        config, before = security._config, security.tokens
        assert config is not None
        security.refresh(config)
        assert security.tokens is before
        file.write_text("{}")
        security.refresh(config)
        assert security.tokens is before, "what does not work changes nothing"
        file.write_text(JWKS + " ")
        security.refresh(config)
        assert security.tokens is not before

    run()
