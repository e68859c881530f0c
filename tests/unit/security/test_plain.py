"""PLAIN, and the JAAS strings that name its users."""

from __future__ import annotations

import pytest

from tidelog.errors import ConfigError
from tidelog.security.jaas import PLAIN_MODULE, parse_jaas
from tidelog.security.plain import PlainServer
from tidelog.security.sasl import SaslError

USERS = {"alice": "s3cret", "bob": "päss"}


def answered(message: bytes) -> PlainServer:
    server = PlainServer(USERS.get)
    assert server.answer(message) == b""
    return server


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"\0alice\0s3cret", "alice"),
        (b"alice\0alice\0s3cret", "alice"),
        ("\0bob\0päss".encode(), "bob"),
    ],
)
def test_a_name_with_its_password_is_taken(message: bytes, user: str) -> None:
    server = answered(message)
    assert (server.is_complete, server.user) == (True, user)


def test_x8_a_user_that_wants_to_act_as_another_is_refused() -> None:
    with pytest.raises(SaslError, match="only act as itself"):
        answered(b"bob\0alice\0s3cret")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0alice\0wrong",
        b"\0alice\0s3cre",
        b"\0alice\0s3crets",
        b"\0alice\0",
        b"\0\0s3cret",
        b"\0nobody\0s3cret",
        b"alice\0s3cret",
        b"\0alice\0s3cret\0",
        b"\0al\xffice\0s3cret",
        b"\0alice\0" + b"x" * 20_000,
    ],
)
def test_anything_else_is_refused_and_not_complete(message: bytes) -> None:
    server = PlainServer(USERS.get)
    with pytest.raises(SaslError):
        server.answer(message)
    assert not server.is_complete


def test_nothing_follows_the_one_message() -> None:
    server = answered(b"\0alice\0s3cret")
    with pytest.raises(SaslError):
        server.answer(b"\0alice\0s3cret")


def test_x8_an_unknown_user_takes_the_same_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.security import plain

    compared = []
    real = plain.hmac.compare_digest
    monkeypatch.setattr(
        plain.hmac, "compare_digest", lambda a, b: compared.append(len(a)) or real(a, b)
    )
    for message in (b"\0nobody\0x", b"\0alice\0x", b"\0alice\0" + b"x" * 999):
        with pytest.raises(SaslError):
            answered(message)
    assert compared == [32, 32, 32]


def test_kafkas_string_for_plain_is_read() -> None:
    login = parse_jaas(
        f'{PLAIN_MODULE} required\n  username="admin" password="x"\n'
        '  user_alice="s3;c=r \\"et\\"" user_bob=plain ;'
    )
    assert login.module == PLAIN_MODULE
    assert login.users == {"alice": 's3;c=r "et"', "bob": "plain"}
    assert login.options["username"] == "admin"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "MODULE required"),
        (f"{PLAIN_MODULE} required", "ends with ;"),
        (f"{PLAIN_MODULE} perhaps;", "stands required"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "JndiLoginModule is not off"),
        ("com.sun.security.auth.module.Krb5LoginModule required a=b;", "Krb5LoginModule is not"),
        (f'{PLAIN_MODULE} required user_a="canary;', "quotation mark"),
        (f"{PLAIN_MODULE} required user_a canary;", "NAME=VALUE"),
        (f"{PLAIN_MODULE} required user_a=;", "NAME=VALUE"),
        (f"{PLAIN_MODULE} required user_a=canary user_a=canary;", "user_a .* twice"),
        (f"{PLAIN_MODULE} required a=b; {PLAIN_MODULE} required a=b;", "one ;|NAME=VALUE"),
    ],
)
def test_a_string_that_is_none_is_refused_without_its_secrets(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_jaas(text)
    assert "canary" not in str(caught.value)
