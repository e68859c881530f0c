"""A real ZooKeeper ensemble on the loopback, for tests: from the jars that PySpark brings along.

    with ZooKeeper(nodes=3) as ensemble:
        ensemble.address          # zookeeper://127.0.0.1:...,127.0.0.1:...,127.0.0.1:...

Each node is a Java process of about 60 MB. Its data lies in a temporary directory and goes with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final

from tidelog.errors import TidelogError
from tidelog.spark.launch.java import find_java

_JARS: Final = ("zookeeper", "slf4j-api", "netty", "metrics-core", "snappy", "commons-io")
_JAVA_OPTIONS: Final = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_NETTY: Final = "org.apache.zookeeper.server.NettyServerCnxnFactory"
# Of a key that exists for one test.
_PASSWORD: Final = "changeit"
_TICK_MS: Final = 200
_START_S: Final = 60.0


class ZooKeeper:
    """An ensemble of one or three nodes, or more.

    With `tls` it serves TLS, too, at `tls_hosts`, by a certificate for `localhost` that it signs
    itself: `certificate` is the PEM file to trust.
    """

    def __init__(self, nodes: int = 1, host: str = "127.0.0.1", *, tls: bool = False) -> None:
        # Where clients reach it; with another host than this it listens everywhere.
        self._host = host
        self._root = Path(tempfile.mkdtemp(prefix="tidelog-zookeeper-"))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        ports = _free_ports(4 * nodes)
        self.client_ports = ports[:nodes]
        self._peer_ports = list(
            zip(ports[nodes : 2 * nodes], ports[2 * nodes : 3 * nodes], strict=True)
        )
        self._tls_ports = ports[3 * nodes :] if tls else []
        self.certificate = str(self._root / "certificate.pem")

    @property
    def hosts(self) -> str:
        return ",".join(f"{self._host}:{port}" for port in self.client_ports)

    @property
    def tls_hosts(self) -> str:
        return ",".join(f"localhost:{port}" for port in self._tls_ports)

    @property
    def address(self) -> str:
        """What `store` takes."""
        return f"zookeeper://{self.hosts}"

    def start(self) -> ZooKeeper:
        """Start every node and return when the ensemble serves."""
        try:
            if self._tls_ports:
                self._make_certificate()
            for node in range(len(self.client_ports)):
                self.start_node(node)
            self.wait_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def start_node(self, node: int) -> None:
        """Start one node, without waiting for it."""
        jars = _class_path()
        config = self._configure(node)
        java = find_java(os.environ).home / "bin" / "java"
        log = (self._root / f"{node}.log").open("ab")
        with log:
            # Without a shell; every argument is made here.
            self._processes[node] = subprocess.Popen(  # nosec B603
                [str(java), *_JAVA_OPTIONS, "-cp", jars, _MAIN, str(config)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def kill_node(self, node: int) -> None:
        """SIGKILL."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def pause_node(self, node: int) -> None:
        """SIGSTOP, until `resume_node`."""
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume_node(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    def leader(self) -> int | None:
        """The node that leads the ensemble, or stands alone."""
        for node in self._processes:
            if _mode(self.client_ports[node]) in ("leader", "standalone"):
                return node
        return None

    def wait_serving(self) -> None:
        """Return once every node that runs serves clients."""
        deadline = time.monotonic() + _START_S
        for node, process in tuple(self._processes.items()):
            while _mode(self.client_ports[node]) is None:
                if process.poll() is not None or time.monotonic() > deadline:
                    log = (self._root / f"{node}.log").read_text(errors="replace")
                    raise TidelogError(f"ZooKeeper node {node} does not serve:\n{log[-2000:]}")
                time.sleep(0.05)

    def stop(self) -> None:
        """End every node and remove its data."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        shutil.rmtree(self._root, ignore_errors=True)

    def __enter__(self) -> ZooKeeper:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _configure(self, node: int) -> Path:
        directory = self._root / str(node)
        directory.mkdir(exist_ok=True)
        # Only a test that asks for another host has it bound beyond loopback.
        bound = "127.0.0.1" if self._host == "127.0.0.1" else "0.0.0.0"  # nosec B104
        lines = [
            f"tickTime={_TICK_MS}", f"dataDir={directory}", f"clientPortAddress={bound}",
            f"clientPort={self.client_ports[node]}", "initLimit=50", "syncLimit=10",
            "admin.enableServer=false", "minSessionTimeout=400", "maxSessionTimeout=60000",
            "4lw.commands.whitelist=srvr", "maxClientCnxns=0",
        ]  # fmt: skip
        if len(self.client_ports) > 1:
            (directory / "myid").write_text(str(node + 1))
            lines += [
                f"server.{number}=127.0.0.1:{peer}:{election}"
                for number, (peer, election) in enumerate(self._peer_ports, 1)
            ]
        if self._tls_ports:
            lines += [
                f"serverCnxnFactory={_NETTY}", f"secureClientPort={self._tls_ports[node]}",
                "secureClientPortAddress=127.0.0.1", "ssl.clientAuth=none",
                f"ssl.keyStore.location={self._key_store}", f"ssl.keyStore.password={_PASSWORD}",
                f"ssl.trustStore.location={self.certificate}",
            ]  # fmt: skip
        config = self._root / f"{node}.cfg"
        config.write_text("\n".join(lines) + "\n")
        return config

    @property
    def _key_store(self) -> Path:
        return self._root / "keys.p12"

    def _make_certificate(self) -> None:
        keytool = str(find_java(os.environ).home / "bin" / "keytool")
        store = ("-keystore", str(self._key_store), "-storepass", _PASSWORD, "-alias", "zookeeper")
        for arguments in (
            ("-genkeypair", "-keyalg", "EC", "-dname", "CN=localhost", "-validity", "30",
             "-storetype", "PKCS12", "-ext", "SAN=dns:localhost"),
            ("-exportcert", "-rfc", "-file", self.certificate),
        ):  # fmt: skip
            # Without a shell; every argument is made here.
            command = [keytool, *arguments, *store]
            subprocess.run(command, check=True, capture_output=True)  # nosec B603


def _class_path() -> str:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise TidelogError("ZooKeeper's jars come with PySpark: pip install 'tidelog[spark]'")
    jars = Path(spec.origin).parent / "jars"
    return ":".join(str(jar) for kind in _JARS for jar in sorted(jars.glob(f"{kind}*.jar")))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _mode(port: int) -> str | None:
    """What a node says of itself: leader, follower, standalone; None while it does not serve."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(b"srvr")
        answer = b""
        while data := connection.recv(4096):
            answer += data
        for line in answer.decode(errors="replace").splitlines():
            name, _, value = line.partition(": ")
            if name == "Mode":
                return value
    return None
