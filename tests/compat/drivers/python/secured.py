"""What the drivers written in Python share for secured listeners.

`secured_produce` sends one value, `secured_consume` reads one as a member of a group, each with a
client of its own. A `connection` says how: servers, protocol, ca, certificate, mechanism, username,
password and token, null where it has none. An error's `kind` is the client's own name for it.
"""

from __future__ import annotations

import ssl

from tests.compat.drivers.python.loop import DriverError, JsonObject

TIMEOUT_S = 10.0
TIMEOUT_MS = 10_000
# A group of a broker that has just been started takes longer.
READ_TIMEOUT_S = 30.0


def tls_context(connection: JsonObject) -> ssl.SSLContext | None:
    """For the clients that take Python's own."""
    if not connection["protocol"].endswith("SSL"):
        return None
    context = ssl.create_default_context(cafile=connection["ca"])
    if connection["certificate"]:
        context.load_cert_chain(connection["certificate"])
    return context


def named(error: BaseException) -> DriverError:
    """The client's error by the name of its class."""
    return DriverError(repr(error), kind=type(error).__name__)
