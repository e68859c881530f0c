"""Apache Kafka from Maven Central: one KRaft node as a context manager, and its own tools.

The jars are fetched once into a cache outside the tree (``$XDG_CACHE_HOME/tidelog/peers``).

    with ApacheKafka(settings={"num.partitions": "4"}) as kafka:
        run_tool("org.apache.kafka.tools.TopicCommand",
                 "--bootstrap-server", kafka.bootstrap_servers, "--list")

`ApacheKafka3` is the last release line before 4; the tools are always those of the newest release.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from xml.etree import ElementTree

from bench.peers.cache import fetched, maven, peer_directory
from bench.peers.peer import Peer
from bench.peers.process import free_port

POM = Path(__file__).with_name("pom.xml")

# What bin/kafka-server-start.sh and bin/kafka-run-class.sh of the distribution pass.
JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# For programs that run a second or two, starting fast matters more than running fast.
SHORT_LIVED_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def _version() -> str:
    namespace = "{http://maven.apache.org/POM/4.0.0}"
    properties = ElementTree.parse(POM).getroot().find(f"{namespace}properties")
    assert properties is not None
    return properties.findtext(f"{namespace}kafka.version", "")


KAFKA_VERSION = _version()
KAFKA_3_VERSION = "3.9.2"


def available() -> bool:
    """Whether this machine can run Apache Kafka at all."""
    if shutil.which("java") is None:
        return False
    return peer_directory(_name(KAFKA_VERSION)).is_dir() or shutil.which("mvn") is not None


def _name(version: str) -> str:
    return f"kafka-{version}"


def libs(version: str = KAFKA_VERSION) -> Path:
    """The directory of Kafka's jars, fetched when it is not there yet."""
    return fetched(_name(version), lambda directory: _fetch(directory, version))


def _fetch(directory: Path, version: str) -> None:
    # Release 3.9 brings another logger's binding, which might win over the one that is set up.
    options = (f"-Dkafka.version={version}", "-DexcludeArtifactIds=slf4j-reload4j")
    target = f"-DoutputDirectory={directory}"
    maven("-f", str(POM), "dependency:copy-dependencies", *options, target)


def jar(name: str) -> Path:
    """The path of one jar by its artifact name: ``jar("kafka-clients")``."""
    found = sorted(path for path in libs().glob(f"{name}-[0-9]*.jar"))
    if len(found) != 1:
        raise FileNotFoundError(f"{len(found)} jars named {name} in {libs()}")
    return found[0]


def class_path(version: str = KAFKA_VERSION) -> str:
    """Kafka's class path; Java itself expands the star, no shell may."""
    return str(libs(version) / "*")


def run_tool(
    class_name: str,
    *arguments: str,
    stdin: str | None = None,
    timeout_s: float = 120.0,
    jvm_options: tuple[str, ...] = SHORT_LIVED_JVM_OPTIONS,
    version: str = KAFKA_VERSION,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line classes to its end; the caller looks at the exit code."""
    return subprocess.run(
        ["java", *jvm_options, "-cp", class_path(version), class_name, *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def random_uuid() -> str:
    """A cluster id as Kafka writes it: 16 bytes in URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class ApacheKafka(Peer):
    """One KRaft node, broker and controller in one process; `settings` win over ours."""

    name = "kafka"
    release = KAFKA_VERSION

    def version(self) -> str:
        return self.release

    def prepare(self) -> None:
        """Write the properties and format the directory if it is new."""
        super().prepare()
        lines = (f"{name}={value}\n" for name, value in self._properties(free_port()).items())
        self._properties_file.write_text("".join(lines))
        if not (self.log_dir / "meta.properties").exists():
            arguments = (
                "format",
                f"--cluster-id={random_uuid()}",
                "-c",
                str(self._properties_file),
            )
            done = run_tool("kafka.tools.StorageTool", *arguments, version=self.release)
            if done.returncode != 0:
                raise RuntimeError(f"formatting failed:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        logging = "-Dorg.apache.logging.log4j.level=INFO"
        program = ["-cp", class_path(self.release), "kafka.Kafka", str(self._properties_file)]
        return ["java", *JVM_OPTIONS, logging, *program]

    @property
    def _properties_file(self) -> Path:
        return self.data_dir / "server.properties"

    def _properties(self, controller_port: int) -> dict[str, str]:
        open_ones = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        secured = dict(zip(self.protocols, self.protocols, strict=True))
        pairs = (f"{name}:{protocol}" for name, protocol in (open_ones | secured).items())
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"{self.listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": self.listeners,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **({"listener.security.protocol.map": ",".join(pairs)} if secured else {}),
            **self.settings,
        }


class ApacheKafka3(ApacheKafka):
    """The same of the 3.9 line, the last one before 4.0."""

    release = KAFKA_3_VERSION
