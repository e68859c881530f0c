"""SASL's PLAIN (RFC 4616): one message with a name and a password.

    [authorization id] NUL name NUL password

Promises: a user acts as itself only (CVE-2017-12610); a password is compared in a time that depends
neither on it nor on whether the user exists. Every fault is a `SaslError`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from tidelog.security.sasl import SaslError

MESSAGE_BYTES_MAX: Final = 16 * 1024
# Longer than the passwords that people have.
_PADDED_BYTES: Final = 256


class PlainServer:
    """The side that knows passwords; `find` gives that of a user, None for an unknown one."""

    def __init__(self, find: Callable[[str], str | None]) -> None:
        self.user = ""
        self.is_complete = False
        self._find = find
        # The password that was right.
        self.password = ""  # nosec B105

    def answer(self, message: bytes) -> bytes:
        if self.is_complete:
            raise SaslError("a message after the last one")
        if len(message) > MESSAGE_BYTES_MAX:
            raise SaslError(f"a message of {len(message)} bytes")
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise SaslError("the message is not two names and a password")
        try:
            acting_as, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise SaslError("the message is not UTF-8") from None
        if not user or not password:
            raise SaslError("the name or the password is empty")
        self.user = user
        known = self._find(user)
        is_right = hmac.compare_digest(_digest(password), _digest(known or ""))
        if known is None:
            raise SaslError("no such user")
        if not is_right:
            raise SaslError("the password is wrong")
        if acting_as and acting_as != user:
            raise SaslError("a user may only act as itself")
        self.is_complete = True
        self.password = known
        return b""


def _digest(text: str) -> bytes:
    """Of one length, so that comparing tells nothing of another one.

    Padded, so that a known password and the empty one of nobody take the same time. On the wire no
    password has a NUL in it, so two different ones stay different.
    """
    return hashlib.sha256(text.encode().ljust(_PADDED_BYTES, b"\0")).digest()
