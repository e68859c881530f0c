"""Each of the usual faults is provoked, and the doctor names it in a sentence with its remedy."""

from __future__ import annotations

import json
import os
import resource
import socket
import ssl
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.client.helpers import Peer, metadata_response
from tidelog import _kernels
from tidelog.cli import doctor_host, doctor_network
from tidelog.cli.main import main
from tidelog.client.metadata import PartitionMetadata, TopicMetadata
from tidelog.host.disk import SystemDisk

SOURCE = str(Path(__file__).parents[3] / "src")
TIMEOUT = 2.0


@contextmanager
def listener(serve: Callable[[socket.socket], None] | None = None) -> Iterator[int]:
    """A port on which something listens; each connection is given to `serve`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopping = False

        def accept() -> None:
            while True:
                stream, _ = server.accept()
                with stream:
                    stream.settimeout(5)
                    if stopping:
                        return
                    try:
                        if serve is not None:
                            serve(stream)
                    except OSError:
                        continue

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stopping = True
            socket.create_connection(server.getsockname()).close()
            thread.join()


def serve_kafka(advertised: tuple[str, int]) -> Callable[[socket.socket], None]:
    """A broker that knows of itself, at the address that it advertises."""

    def serve(stream: socket.socket) -> None:
        answer = metadata_response()
        answer.brokers = answer.brokers[:1]
        answer.brokers[0].host, answer.brokers[0].port = advertised
        peer = Peer(lambda header, message: answer)
        while data := stream.recv(65536):
            if data[:1] == b"\x16":
                return
            stream.sendall(peer.answers(data))

    return serve


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_port_that_is_taken() -> None:
    with listener() as port:
        finding = doctor_host.check_port_free("127.0.0.1", port)
    assert not finding.ok
    assert finding.sentence == f"Port {port} on 127.0.0.1 is taken by another process."
    assert f"--listen 127.0.0.1:{port + 1}" in finding.hint
    assert doctor_host.check_port_free("127.0.0.1", port).ok


def test_an_address_that_is_not_ours_to_listen_on() -> None:
    finding = doctor_host.check_port_free("192.0.2.1", 9092)
    assert not finding.ok
    assert finding.sentence == "192.0.2.1 is no address of this machine."
    assert finding.hint == (
        "--listen 0.0.0.0:9092 --advertise 192.0.2.1:9092 --set allow.plaintext.listeners=true"
    )


def test_nothing_listening() -> None:
    port = unused_port()
    finding = doctor_network.check_listening("127.0.0.1", port, TIMEOUT)
    assert not finding.ok
    assert finding.sentence == f"Nothing listens on 127.0.0.1:{port}."
    assert "tidelog up" in finding.hint


def test_an_advertised_address_that_cannot_be_reached() -> None:
    dead = unused_port()
    with listener(serve_kafka(("127.0.0.1", dead))) as port:
        findings = list(doctor_network.examine(("127.0.0.1", port), TIMEOUT))
    assert [finding.ok for finding in findings] == [True, True, True, True, False]
    assert f"tells clients to use 127.0.0.1:{dead}" in findings[-1].sentence
    assert findings[-1].hint == f"start the broker with --advertise 127.0.0.1:{port}"


def test_an_advertised_name_that_does_not_resolve() -> None:
    with listener(serve_kafka(("broker.invalid", 9092))) as port:
        *_, finding = doctor_network.examine(("127.0.0.1", port), TIMEOUT)
    assert not finding.ok
    assert "broker.invalid:9092" in finding.sentence
    assert finding.hint == f"start the broker with --advertise 127.0.0.1:{port}"


def test_a_healthy_broker() -> None:
    with listener() as other, listener(serve_kafka(("127.0.0.1", other))) as port:
        findings = list(doctor_network.examine(("127.0.0.1", port), TIMEOUT))
    assert all(finding.ok for finding in findings)
    assert len(findings) == 5


def test_a_client_with_tls_against_a_plaintext_broker() -> None:
    with listener(serve_kafka(("127.0.0.1", 1))) as port:
        finding = doctor_network.check_protocol("127.0.0.1", port, TIMEOUT, tls=True)
    assert not finding.ok
    assert finding.sentence == f"The client speaks TLS, but 127.0.0.1:{port} speaks plaintext."
    assert "security.protocol=PLAINTEXT" in finding.hint


def test_a_plaintext_client_against_a_tls_listener() -> None:
    # Without a certificate no handshake succeeds, but the refusal is spoken in TLS all the same.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def serve(stream: socket.socket) -> None:
        with context.wrap_socket(stream, server_side=True) as wrapped:
            wrapped.recv(1)

    with listener(serve) as port:
        finding = doctor_network.check_protocol("127.0.0.1", port, TIMEOUT)
        proper = doctor_network.check_protocol("127.0.0.1", port, TIMEOUT, tls=True)
    assert not finding.ok
    assert finding.sentence == f"127.0.0.1:{port} speaks TLS, but the client speaks plaintext."
    assert "security.protocol=SSL" in finding.hint
    assert proper.ok


def test_a_port_of_some_other_service() -> None:
    def serve(stream: socket.socket) -> None:
        stream.recv(1000)
        stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with listener(serve) as port:
        finding = doctor_network.check_protocol("127.0.0.1", port, TIMEOUT)
    assert not finding.ok
    assert "does not speak Kafka's protocol" in finding.sentence


def test_a_name_that_does_not_resolve() -> None:
    finding = doctor_network.check_name("broker.invalid")
    assert not finding.ok
    assert finding.sentence.startswith("The name broker.invalid cannot be resolved: ")
    assert "DNS" in finding.hint


def test_a_file_in_the_way_of_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finding = doctor_host.check_directory(str(tmp_path / "file" / "data"))
    assert (finding.ok, finding.sentence) == (False, f"{tmp_path / 'file'} is not a directory.")
    assert "--data-dir" in finding.hint
    assert doctor_host.check_directory(str(tmp_path / "data" / "of" / "mine")).ok


def test_a_data_directory_that_others_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write anywhere, so the answer of the system is put in its place.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    finding = doctor_host.check_directory(str(tmp_path / "data"))
    assert (finding.ok, finding.sentence) == (False, f"You may not write to {tmp_path}.")
    assert "chown" in finding.hint


def test_a_locked_data_directory(tmp_path: Path) -> None:
    disk = SystemDisk()
    assert doctor_host.check_lock(disk, str(tmp_path)).ok
    fd = disk.lock(str(tmp_path / ".lock"))
    try:
        os.pwrite(fd, b"4711\n", 0)
        finding = doctor_host.check_lock(disk, str(tmp_path))
    finally:
        disk.close(fd)
    assert not finding.ok
    assert finding.sentence == f"{tmp_path} is locked by another broker (process 4711)."
    assert "--data-dir" in finding.hint
    assert doctor_host.check_lock(disk, str(tmp_path)).ok


class FullDisk(SystemDisk):
    def free_bytes(self, path: str) -> int:
        return 12_000_000


def test_a_disk_that_is_almost_full(tmp_path: Path) -> None:
    data_dir = str(tmp_path / "not" / "there" / "yet")
    finding = doctor_host.check_space(FullDisk(), data_dir)
    assert not finding.ok
    assert finding.sentence.startswith(f"{data_dir} has only 12 MB free")
    assert "retention" in finding.hint


def run_doctor(*arguments: str, prelude: str = "") -> tuple[int, list[dict[str, object]]]:
    program = f"{prelude}\nfrom tidelog.cli.main import main\nmain({['doctor', *arguments]!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_a_low_limit_of_open_files(tmp_path: Path) -> None:
    prelude = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))"
    code, findings = run_doctor("--data-dir", str(tmp_path), "--format", "json", prelude=prelude)
    named = {str(finding["name"]): finding for finding in findings}
    assert code == 1
    assert not named["open files"]["ok"]
    assert "may open only 256 files" in str(named["open files"]["sentence"])
    assert "ulimit -n" in str(named["open files"]["hint"])
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256


def test_a_configuration_with_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("log.segment.byte=1048576\n")
    finding = doctor_host.check_configuration((str(file),), {})
    assert not finding.ok
    assert f"{file}:1" in finding.sentence
    assert "log.segment.bytes" in finding.sentence
    assert "docs/configuration.md" in finding.hint
    file.write_text("log.segment.bytes=1048576\n")
    assert doctor_host.check_configuration((str(file),), {}).ok


def test_a_configuration_file_that_is_not_there() -> None:
    assert not doctor_host.check_configuration(("/nonexistent/broker.properties",), {}).ok


def test_kernels_that_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kernels, "COMPILED", False)
    finding = doctor_host.check_kernels()
    assert not finding.ok
    assert "not compiled" in finding.sentence
    assert "compiler" in finding.hint
    monkeypatch.setattr(_kernels, "COMPILED", True)
    assert doctor_host.check_kernels().ok


def test_the_command_prints_every_finding_and_exits_with_1_for_a_fault(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kernels, "COMPILED", True)
    port = unused_port()
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "-b", f"127.0.0.1:{port}"])
    out = capsys.readouterr().out
    assert stop.value.code == 1
    assert "ok     kernels: " in out
    assert f"FAULT  port: Nothing listens on 127.0.0.1:{port}.\n       hint: " in out


def test_who_plans_a_broker_is_not_told_about_one_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kernels, "COMPILED", True)
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS", raising=False)
    listen = f"127.0.0.1:{unused_port()}"
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--listen", listen, "--data-dir", str(tmp_path), "--format", "json"])
    findings = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0
    assert [finding["name"] for finding in findings] == [
        "kernels", "open files", "port", "data directory", "disk",
    ]  # fmt: skip


def test_partitions_that_are_offline() -> None:
    def topic(name: str, offline: set[int]) -> TopicMetadata:
        partitions = {
            number: PartitionMetadata(number, 1, 0, [1], [1], [1] if number in offline else [], 0)
            for number in range(20)
        }
        return TopicMetadata(name, uuid.UUID(int=1), 0, False, partitions)

    found = doctor_network.check_partitions([topic("a", set()), topic("b", set())])
    assert found.ok
    assert found.sentence == "Every partition is online: 40 of 40."
    found = doctor_network.check_partitions([topic("a", {3}), topic("b", set(range(12)))])
    assert not found.ok
    assert found.sentence.startswith("13 of 40 partitions are offline: a-3, b-0, b-1")
    assert found.sentence.endswith(" and 3 more.")
    assert "restart the broker" in found.hint
