"""A standalone Spark cluster of real processes: a master, and workers that can be killed.

It runs from PySpark's own jars, as `sbin/start-master.sh` of a Spark distribution would start it.
Executors are children of their worker, and Python processes children of their executor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pyspark

from tests.e2e.broker_process import free_port
from tests.spark.processes import descendants_of, kill_with_descendants, wait_until
from tidelog.spark.launch.java import find_java

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
_DEPLOY = "org.apache.spark.deploy"
# Small and quick to start; the master's REST server would take a fixed port.
_JVM_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dspark.master.rest.enabled=false",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


def spark_environment() -> dict[str, str]:
    """What master, workers, executors and drivers need to find Java, Python and this source."""
    home = Path(pyspark.__file__).parent
    (core,) = home.glob("jars/spark-core_*.jar")
    return {
        **os.environ,
        "JAVA_HOME": str(find_java(os.environ).home),
        "SPARK_HOME": str(home),
        # Spark's scripts find it; a worker that is started without them must be told.
        "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").partition("-")[0],
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
    }


class Worker:
    """A worker with one core, hence one executor with one core for each application."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    def is_registered(self) -> bool:
        return "Successfully registered with master" in self.log.read_text()

    def runs(self, pid: int) -> bool:
        """Whether a process is one of this worker's executors or of their Python processes."""
        return pid in {each.pid for each in descendants_of(self.process)}

    def kill(self) -> None:
        """SIGKILL the worker, its executors and their Python processes."""
        kill_with_descendants(self.process)


class SparkCluster:
    """A context in which `url` is a master with workers."""

    def __init__(self, directory: Path, hosts: Sequence[str] = (HOST, HOST)) -> None:
        """A worker at each of these addresses; Spark speculates only across different ones."""
        self._directory, self._hosts = directory, hosts
        self._environment = spark_environment()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[Worker] = []
        self.url = f"spark://{HOST}:{free_port()}"

    def __enter__(self) -> SparkCluster:
        try:
            self._start()
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill_all()

    def _start(self) -> None:
        port = self.url.rpartition(":")[2]
        place = ["--host", HOST, "--port", port, "--webui-port", "0"]
        master, log = self._java(f"{_DEPLOY}.master.Master", place)
        wait_until(lambda: "New state: ALIVE" in log.read_text(), master, log)
        place = ["--webui-port", "0", "--cores", "1", "--memory", "700m"]
        for number, host in enumerate(self._hosts):
            directory = self._directory / f"worker-{number}"
            arguments = ["--host", host, *place, "--work-dir", str(directory), self.url]
            self.workers.append(Worker(*self._java(f"{_DEPLOY}.worker.Worker", arguments)))
        for worker in self.workers:
            wait_until(worker.is_registered, worker.process, worker.log)

    def _java(self, main: str, arguments: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._directory / f"{main.rpartition('.')[2]}-{len(self._processes)}.log"
        java = Path(self._environment["JAVA_HOME"]) / "bin" / "java"
        jars = Path(self._environment["SPARK_HOME"]) / "jars" / "*"
        command = [str(java), *_JVM_OPTIONS, "-cp", str(jars), main, *arguments]
        with log.open("wb") as file:
            process = subprocess.Popen(command, env=self._environment, stdout=file, stderr=file)
        self._processes.append(process)
        return process, log

    def _kill_all(self) -> None:
        for process in reversed(self._processes):
            kill_with_descendants(process)
