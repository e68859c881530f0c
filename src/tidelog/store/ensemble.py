"""Where ZooKeeper is and how to speak with it."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config.store_settings import DEFAULT_CHROOT


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
