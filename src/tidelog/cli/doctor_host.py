"""The doctor's look at this machine: can a broker start here, and will it run well?"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidelog.cli.finding import Finding, fault, well
from tidelog.client.metadata import parse_bootstrap
from tidelog.errors import ConfigError
from tidelog.host.disk import Disk

FREE_BYTES_MIN = 1 << 30
OPEN_FILES_MIN = 1024
_LOCK = ".lock"


@dataclass(slots=True)
class Plan:
    """The broker that somebody wants to start here."""

    listen: str | None = None
    data_dir: str | None = None
    files: tuple[str, ...] = ()


def examine(environment: Mapping[str, str], disk: Disk, plan: Plan) -> Iterator[Finding]:
    """Every check that the plan asks for, and those that always matter."""
    yield check_kernels()
    yield check_open_files()
    if plan.files:
        yield check_configuration(plan.files, environment)
    if plan.listen is not None:
        host, port = parse_bootstrap(plan.listen)[0]
        yield check_port_free(host, port)
    if plan.data_dir is not None:
        yield from check_data_dir(disk, plan.data_dir)


def check_kernels() -> Finding:
    """Are the record kernels compiled?"""
    from tidelog import _kernels

    if _kernels.COMPILED:
        return well("kernels", "The record kernels are compiled.")
    return fault(
        "kernels",
        "The record kernels are not compiled, so records are checked about a hundred times slower.",
        "install a wheel, or a C compiler and then `pip install --force-reinstall tidelog`",
    )


def check_open_files() -> Finding:
    """May a process open enough files for its connections and segments?"""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or limit >= OPEN_FILES_MIN:
        shown = "any number of" if limit == resource.RLIM_INFINITY else f"{limit:,}"
        return well("open files", f"A process may open {shown} files.")
    return fault(
        "open files",
        f"A process may open only {limit:,} files; a broker needs one per connection "
        "and up to three per partition.",
        "`ulimit -n 65536`, or LimitNOFILE=65536 in the systemd unit",
    )


def check_configuration(files: tuple[str, ...], environment: Mapping[str, str]) -> Finding:
    """Do the files and the environment make a configuration?"""
    from tidelog.config import load

    shown = ", ".join(files)
    try:
        config = load(files=files, environment=environment, overrides={})
    except (ConfigError, OSError) as error:
        return fault(
            "configuration",
            f"The configuration cannot be used: {error}",
            "docs/configuration.md lists every setting",
        )
    note = f" with {len(config.warnings)} warnings" if config.warnings else ""
    return well("configuration", f"{shown} can be used{note}.")


def check_port_free(host: str, port: int) -> Finding:
    """Could a broker listen there?"""
    address = f"{host}:{port}"
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        reason = error.strerror or str(error)
        return fault("port", f"The name {host} cannot be resolved: {reason}.", "name an address")
    with socket.socket(family, kind, protocol) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            stream.bind(target)
            stream.listen(1)
        except OSError as error:
            return _not_bound(error, host, port)
    return well("port", f"{address} is free to listen on.")


def _not_bound(error: OSError, host: str, port: int) -> Finding:
    address = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return fault(
            "port",
            f"Port {port} on {host} is taken by another process.",
            f"stop it (`ss -ltnp 'sport = :{port}'` names it), or listen elsewhere: "
            f"--listen {host}:{port + 1 if port < 65535 else port - 1}",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        sentence = f"{host} is no address of this machine."
        open_to_others = "--set allow.plaintext.listeners=true"
        hint = f"--listen 0.0.0.0:{port} --advertise {address} {open_to_others}"
        return fault("port", sentence, hint)
    reason = error.strerror or str(error)
    return fault("port", f"{address} cannot be listened on: {reason}.", "try a port above 1023")


def check_data_dir(disk: Disk, data_dir: str) -> Iterator[Finding]:
    """What `tidelog up` will find there; the directory need not exist yet."""
    usable = check_directory(data_dir)
    if not usable.ok:
        yield usable
        return
    yield check_lock(disk, data_dir)
    yield check_space(disk, data_dir)


def check_directory(data_dir: str) -> Finding:
    """Is it a directory that this user may write to, or could it be made?"""
    path = os.path.abspath(data_dir)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        return fault(
            "data directory",
            f"{path} is not a directory.",
            "move it away, or use another directory: --data-dir DIR",
        )
    if not os.access(path, os.W_OK | os.X_OK):
        return fault(
            "data directory",
            f"You may not write to {path}.",
            f"run `chown -R $USER {path}`, or use another directory: --data-dir DIR",
        )
    return well("data directory", f"{data_dir} can be written to.")


def check_lock(disk: Disk, data_dir: str) -> Finding:
    """Is the data directory free for a broker to use?"""
    path = os.path.join(data_dir, _LOCK)
    if not disk.exists(path):
        return well("data directory", f"{data_dir} is not in use.")
    try:
        disk.close(disk.lock(path))
    except BlockingIOError:
        return fault(
            "data directory",
            f"{data_dir} is locked by another broker{_holder(disk, path)}.",
            "stop that broker, or give this one a directory of its own: --data-dir DIR",
        )
    except OSError as error:
        reason = error.strerror or str(error)
        return fault(
            "data directory",
            f"{path} cannot be opened: {reason}.",
            "the broker's user must own its data directory",
        )
    return well("data directory", f"{data_dir} is not in use.")


def _holder(disk: Disk, path: str) -> str:
    """Who holds the lock, as the broker wrote it in there."""
    fd = disk.open(path)
    try:
        text = disk.pread(fd, 20, 0).strip()
    finally:
        disk.close(fd)
    return f" (process {text.decode()})" if text.isdigit() else ""


def check_space(disk: Disk, data_dir: str) -> Finding:
    """Is there room on the disk?"""
    path = os.path.abspath(data_dir)
    while not disk.exists(path):
        path = os.path.dirname(path)
    free = disk.free_bytes(path)
    if free >= FREE_BYTES_MIN:
        return well("disk", f"{data_dir} has {free / 1e9:,.1f} GB free.")
    return fault(
        "disk",
        f"{data_dir} has only {free / 1e6:,.0f} MB free; a broker refuses writes on a full disk.",
        "make room, lower retention.ms or retention.bytes, or use another disk: --data-dir DIR",
    )
