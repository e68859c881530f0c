"""Which of the addresses behind a name are listened on."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any, cast

import pytest

from tidelog.host.acceptor import SocketAcceptor
from tidelog.host.clock import Clock
from tidelog.host.network import Gate

BOTH_FAMILIES = [
    (socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("::1", 0, 0, 0)),
    (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0)),
]


class SocketWithoutIpv6(socket.socket):
    def __init__(self, family: int = -1, *rest: Any, **options: Any) -> None:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        super().__init__(family, *rest, **options)


async def bound_hosts(found: list[Any]) -> list[str]:
    async def resolve(*_: object, **__: object) -> list[Any]:
        return found

    acceptor = SocketAcceptor("x", cast(Gate, None), cast(Clock, None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        patch.setattr(socket, "socket", SocketWithoutIpv6)
        await acceptor.bind("localhost", 0)
    hosts = [stream.getsockname()[0] for stream in acceptor._sockets]
    acceptor._close_sockets()
    return hosts


def test_where_the_kernel_has_no_ipv6_the_other_addresses_are_listened_on() -> None:
    assert asyncio.run(bound_hosts(BOTH_FAMILIES)) == ["127.0.0.1"]


def test_where_no_address_is_left_the_error_names_the_listener() -> None:
    with pytest.raises(OSError, match="cannot listen on localhost:0: Address family") as caught:
        asyncio.run(bound_hosts(BOTH_FAMILIES[:1]))
    assert caught.value.errno == errno.EAFNOSUPPORT
