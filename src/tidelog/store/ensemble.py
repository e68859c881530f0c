"""Where ZooKeeper is and how to speak with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.config.store_settings import DEFAULT_CHROOT

_SAME_TIME_S: Final = 0.05


@dataclass(slots=True, frozen=True)
class Ensemble:
    """What the settings say of it."""

    hosts: str
    chroot: str = DEFAULT_CHROOT
    session_s: float = 9.0
    connect_s: float = 30.0
    # "user:password" of ZooKeeper's digest scheme; the nodes then belong to that user alone.
    digest: str | None = None
    tls: bool = False
    tls_ca: str | None = None
    # A file with the certificate and its key.
    tls_certificate: str | None = None
    tls_key_password: str | None = None
    tls_check_host: bool = True

    def session_fault(self, given_ms: float) -> str | None:
        """Why sessions of this length will not do; None where they are what was asked for.

        A broker counts on the time that it asked for: others wait for it that long.
        """
        given_s = given_ms / 1000
        if abs(given_s - self.session_s) < _SAME_TIME_S:
            return None
        return (
            f"ZooKeeper at {self.hosts} gives sessions of {given_s:.1f} s, and"
            f" zookeeper.session.timeout.ms asks for {self.session_s:.1f} s: set it to"
            f" {given_ms:.0f}, or change minSessionTimeout and maxSessionTimeout there"
        )
