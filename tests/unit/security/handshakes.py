"""A TLS handshake in memory, without sockets."""

from __future__ import annotations

import ssl


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "127.0.0.1"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after the handshake; the error of the side that refused it."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(up, down, server_side=True),
        client.wrap_bio(down, up, server_hostname=host),
    )
    for _ in range(10):
        waiting = 0
        for end in reversed(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if not waiting:
            break
    # With TLS 1.3 a server refuses a client's certificate after the client is done.
    ends[0].write(b"x")
    assert ends[1].read(1) == b"x"
    return ends
