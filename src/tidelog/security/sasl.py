"""What SASL's mechanisms have in common on the side of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog.security.authorizer import Principal


class SaslError(TidelogError):
    """The exchange has failed; the text is for the log, not for the peer."""


def _always() -> bool:
    return True


class Login(NamedTuple):
    """Who has authenticated, whether it still may, and for how long."""

    principal: Principal
    mechanism: str
    # False once the user was deleted or has another password.
    is_current: Callable[[], bool] = _always
    lifetime_ms: int = 0


class SaslServer(Protocol):
    """One exchange, from the client's first message to the last."""

    # Who authenticates; proven only once `is_complete`.
    user: str
    is_complete: bool

    def answer(self, message: bytes) -> bytes:
        """The next message for the client; SaslError where the exchange has failed."""
        ...
