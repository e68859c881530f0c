"""Several brokers of each kind, as one peer: a parent process whose children they are."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import time
from collections.abc import Mapping
from urllib.request import urlopen

from bench.peers.kafka import ApacheKafka, random_uuid, run_tool
from bench.peers.process import free_port, wait_until_serving
from bench.peers.tidelog import TidelogBroker

BROKERS = 3
# Three JVMs start at once, on a machine that may be busy.
_START_SECONDS = 180.0
# Ends its children with itself, however it ends.
_PARENT = """
import ctypes, signal, subprocess, sys
def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
commands = [each.split("\\n") for each in sys.argv[1:]]
children = [subprocess.Popen(each, preexec_fn=die_with_parent) for each in commands]
signal.signal(signal.SIGTERM, lambda *_: [each.terminate() for each in children])
for each in children:
    each.wait()
"""


class TidelogCluster(TidelogBroker):
    """``tidelog up --brokers N`` on free ports of loopback, with as many replicas."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = BROKERS,
        replicas: int = BROKERS,
    ) -> None:
        super().__init__(settings=settings)
        self.brokers = brokers
        self.replicas = replicas
        self._metrics_port = 0

    def prepare(self) -> None:
        super().prepare()
        self._metrics_port = _free_ports(self.brokers)

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "tidelog", "up", "--brokers", str(self.brokers)]
        command += ["--listen", self.bootstrap_servers, "--data-dir", str(self.log_dir)]
        command += ["--replication", str(self.replicas)]
        command += ["--metrics", f"127.0.0.1:{self._metrics_port}"]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def wait_until_serving(self, timeout_s: float = _START_SECONDS) -> None:
        """Return when all brokers serve, as the parent says."""
        deadline = time.monotonic() + timeout_s
        while "tidelog is up" not in self.output.read_text(errors="replace"):
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"the cluster ended:\n{self.output_tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cluster is not up:\n{self.output_tail()}")
            time.sleep(0.1)

    def callback_ms(self) -> float:
        """The most CPU time that any broker's event loop has used at a stretch since it started;
        no callback has used more."""
        longest = 0.0
        for node in range(self.brokers):
            with urlopen(f"http://127.0.0.1:{self._metrics_port + node}/metrics") as page:
                text = page.read().decode()
            found = re.search(r"^tidelog_loop_busy_max_seconds (\S+)", text, re.MULTILINE)
            assert found is not None, "the broker does not say how busy its loop was"
            longest = max(longest, float(found[1]))
        return longest * 1e3


def _free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        first = free_port()
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


class KafkaCluster(ApacheKafka):
    """Three KRaft nodes, each broker and controller."""

    brokers = replicas = BROKERS

    def prepare(self) -> None:
        super(ApacheKafka, self).prepare()
        cluster_id, voters = random_uuid(), [free_port() for _ in range(BROKERS)]
        self._ports = [self.port, *(free_port() for _ in range(BROKERS - 1))]
        quorum = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(voters))
        self._files = []
        for node, port in enumerate(self._ports):
            broker = f"PLAINTEXT://127.0.0.1:{port}"
            properties = self._properties(voters[node]) | {
                "node.id": str(node),
                "controller.quorum.voters": quorum,
                "listeners": f"{broker},CONTROLLER://127.0.0.1:{voters[node]}",
                "advertised.listeners": broker,
                "log.dirs": str(self.log_dir / str(node)),
                "offsets.topic.replication.factor": str(BROKERS),
                "transaction.state.log.replication.factor": str(BROKERS),
                "transaction.state.log.min.isr": str(BROKERS - 1),
            }
            path = self.data_dir / f"server-{node}.properties"
            path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            self._files.append(path)
            arguments = ("format", f"--cluster-id={cluster_id}", "-c", str(path))
            done = run_tool("kafka.tools.StorageTool", *arguments, version=self.release)
            if done.returncode != 0:
                raise RuntimeError(f"formatting failed:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        one = super().command()
        nodes = ("\n".join([*one[:-1], str(path)]) for path in self._files)
        return [sys.executable, "-c", _PARENT, *nodes]

    def wait_until_serving(self, timeout_s: float = _START_SECONDS) -> None:
        assert self._process is not None, "not launched"
        for port in self._ports:
            wait_until_serving(port, self._process, self.output_tail, timeout_s)
