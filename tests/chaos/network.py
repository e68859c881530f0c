"""A network namespace for each broker, on one bridge: a cable can be pulled for each.

The store and the clients are on this machine, at two addresses of the bridge, so that a broker can
lose the one and keep the other. Names and addresses are those of one run: several runs at a time do
not meet, and what a killed one has left behind is removed by the next. Only root can make them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

# Another broker, or one of the two addresses of this machine.
Peer = int | Literal["store", "clients"]

_BRIDGE: Final = re.compile(r"\d+: (tl(\d+)): .*")
_HOSTS: Final = {"store": 253, "clients": 254}
# A filter of packets that drops those of one IPv4 source.
_DROP: Final = "6,40 0 0 12,21 0 3 2048,32 0 0 26,21 0 1 {source},6 0 0 2,6 0 0 4294967295"


def can_isolate() -> bool:
    """Whether this user may make network namespaces."""
    if os.geteuid() != 0 or None in map(shutil.which, ("ip", "tc", "nsenter")):
        return False
    name = f"tl{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode == 0:
        _ip("netns", "del", name)
    return made.returncode == 0


class Network:
    """A bridge with a cable to each of some namespaces, until `remove`."""

    def __init__(self, brokers: int) -> None:
        self._brokers = range(brokers)
        self._bridge = f"tl{os.getpid()}"
        self._cuts: list[tuple[str, ...]] = []
        _remove_leftovers()
        self._subnet = _free_subnet()
        _ip("link", "add", self._bridge, "type", "bridge")
        for number in sorted(_HOSTS.values(), reverse=True):
            _ip("addr", "add", f"10.77.{self._subnet}.{number}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for broker in self._brokers:
            space = cable = self.space(broker)
            _ip("netns", "add", space)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", cable, "master", self._bridge)
            _ip("link", "set", cable, "up")
            _ip("-n", space, "addr", "add", f"{self.address(broker)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def space(self, broker: int) -> str:
        return f"{self._bridge}-b{broker}"

    def address(self, peer: Peer) -> str:
        return f"10.77.{self._subnet}.{peer + 1 if isinstance(peer, int) else _HOSTS[peer]}"

    def cut(self, broker: int, peer: Peer) -> None:
        """Nothing goes between a broker and a peer."""
        route = ("blackhole", f"{self.address(peer)}/32")
        _ip("-n", self.space(broker), "route", "add", *route)
        self._cuts.append(("ip", "-n", self.space(broker), "route", "del", *route))

    def deafen(self, broker: int, peer: Peer) -> None:
        """The broker does not hear the peer, which still hears the broker."""
        cable = self.space(broker)
        source = int.from_bytes(bytes(map(int, self.address(peer).split("."))))
        if not any(cut[:2] == ("tc", "qdisc") and cable in cut for cut in self._cuts):
            _run("tc", "qdisc", "add", "dev", cable, "clsact")
            self._cuts.append(("tc", "qdisc", "del", "dev", cable, "clsact"))
        drop = _DROP.format(source=source)
        _run("tc", "filter", "add", "dev", cable, "egress", "bpf", "da", "bytecode", drop)

    def heal(self) -> None:
        for undo in self._cuts:
            _run(*undo)
        self._cuts.clear()

    def remove(self) -> None:
        _remove(self._bridge)


def _free_subnet() -> int:
    addresses = _run("ip", "-o", "-4", "addr")
    taken = {int(each) for each in re.findall(r" 10\.77\.(\d+)\.", addresses)}
    return next(each for each in range(256) if each not in taken)


def _remove_leftovers() -> None:
    """The networks of runs that were killed."""
    for line in _run("ip", "-o", "link", "show", "type", "bridge").splitlines():
        found = _BRIDGE.match(line)
        if found and not Path(f"/proc/{found[2]}").exists():
            _remove(found[1])


def _remove(bridge: str) -> None:
    for line in _run("ip", "netns", "list").splitlines():
        space = line.split()[0]
        if space.startswith(f"{bridge}-"):
            _ip("netns", "del", space)
            with suppress(RuntimeError):  # it may have gone with its namespace
                _ip("link", "del", space)
    with suppress(RuntimeError):
        _ip("link", "del", bridge)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
