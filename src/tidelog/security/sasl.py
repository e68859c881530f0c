"""What SASL's mechanisms have in common on the side of the server."""

from __future__ import annotations

from typing import Protocol

from tidelog.errors import TidelogError


class SaslError(TidelogError):
    """The exchange has failed; the text is for the log, not for the peer."""


class SaslServer(Protocol):
    """One exchange, from the client's first message to the last."""

    # Who authenticates; proven only once `is_complete`.
    user: str
    is_complete: bool

    def answer(self, message: bytes) -> bytes:
        """The next message for the client; SaslError where the exchange has failed."""
        ...
