"""The command line as a user meets it: real processes, a real broker, pipes and a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.kafka import ApacheKafka
from tests.e2e.broker_process import BrokerProcess

SECONDS_MAX = 60
# What doctor finds out without a broker.
OF_THIS_MACHINE = ("kernels", "open files", "java", "worker python")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("cli") / "data"
    with BrokerProcess(data_dir, {"auto.create.topics.enable": "true"}) as broker:
        yield broker


class Shell:
    """Runs `tidelog` against the broker."""

    def __init__(self, broker: BrokerProcess | ApacheKafka) -> None:
        self.environment = {
            **os.environ,
            "TIDELOG_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "PYTHONUNBUFFERED": "1",
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "tidelog", *arguments]

    def run(self, *arguments: str, stdin: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        return subprocess.run(
            self.command(*arguments), input=data, capture_output=True, env=self.environment,
            check=False, timeout=SECONDS_MAX,
        )  # fmt: skip

    def ok(self, *arguments: str, stdin: str | bytes = b"") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=self.environment,
        )  # fmt: skip


@pytest.fixture
def shell(broker: BrokerProcess) -> Shell:
    return Shell(broker)


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], SECONDS_MAX)
    assert ready, "no output in time"
    return process.stdout.readline()


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, out, err


def test_a_topic_s_life(shell: Shell) -> None:
    made = shell.run("topic", "create", "life", "-p", "2", "--set", "retention.ms=60000")
    assert (made.returncode, made.stdout) == (0, b"")
    assert made.stderr == b"life created: 2 partitions\n"
    assert shell.run("topic", "create", "life").returncode == 1
    assert shell.run("topic", "create", "life", "--if-not-exists").returncode == 0
    assert "life" in shell.ok("topic", "list").split()
    shell.ok("topic", "add-partitions", "life", "--to", "3")
    [described] = json.loads(shell.ok("topic", "describe", "life", "--format", "json"))
    assert described["settings"] == {"retention.ms": "60000"}
    assert [part["partition"] for part in described["partitions"]] == [0, 1, 2]
    assert described["size"] == sum(part["size"] for part in described["partitions"]) == 0
    changed = shell.ok("topic", "config", "life", "--set", "max.message.bytes=5000",
                       "--delete", "retention.ms")  # fmt: skip
    assert changed.split() == ["NAME", "VALUE", "SOURCE", "max.message.bytes", "5000", "topic"]
    refused = shell.run("topic", "config", "life", "--set", "max.message.bytes=many")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(b"hint: ")
    shell.ok("topic", "delete", "life", "--yes")
    gone = shell.run("topic", "describe", "life")
    assert gone.returncode == 4
    assert b"'life' does not exist" in gone.stderr
    assert shell.run("topic", "delete", "life", "--if-exists", "--yes").returncode == 0


def test_kafka_s_own_flags_are_understood(shell: Shell, broker: BrokerProcess) -> None:
    servers = ["--bootstrap-server", broker.bootstrap_servers]
    shape = ["--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=5000"]
    shell.ok("topic", "create", "--topic", "flags", *shape, *servers)
    shell.ok("produce", "flags", stdin="a\n")
    out = shell.ok("consume", "flags", "--from-beginning", "--max-messages", "1")
    assert out == "a\n"


def test_lines_with_keys_headers_and_a_codec_come_back_by_template(shell: Shell) -> None:
    shell.ok("topic", "create", "lines", "-p", "3")
    done = shell.run("produce", "lines", "-K", ":", "-z", "zstd", "-H", "from=test", "-H", "null",
                     stdin="a:1\nb:2\r\na:3")  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"3 records sent to lines\n")
    out = shell.ok("consume", "lines", "-e", "-f", r"%k=%v %h\n")
    assert sorted(out.splitlines()) == [
        "a=1 from=test,null", "a=3 from=test,null", "b=2 from=test,null",
    ]  # fmt: skip
    keyed = shell.ok("consume", "lines", "-e", "-f", r"%k%v ").split()
    assert keyed.index("a1") < keyed.index("a3")


def test_values_as_hex_base64_json_null_and_raw(shell: Shell) -> None:
    shell.ok("topic", "create", "values", "-p", "1")
    shell.ok("produce", "values", "--value-as", "hex", stdin="00ff\n")
    shell.ok("produce", "values", "--value-as", "base64", "-v", "AP8=")
    shell.ok("produce", "values", "--null", "NULL", "-k", "k", stdin="NULL\n\n")
    shell.ok("produce", "values", "-i", "raw", stdin=b"two\nlines")
    shell.ok("produce", "values", "-f", r"%k\t%v{json}", stdin='key\t{"a":1}\n')
    bad = shell.run("produce", "values", "--value-as", "json", stdin="{\n")
    assert bad.returncode == 1
    assert b"is not json" in bad.stderr
    out = shell.ok("consume", "values", "-e", "-f", r"%V:%v{hex} %k|")
    assert out.split("|")[:-1] == [
        "2:00ff ", "2:00ff ", "-1: k", "0: k", "9:74776f0a6c696e6573 ", "7:7b2261223a317d key",
    ]  # fmt: skip


def test_json_lines_go_from_topic_to_topic_unchanged(shell: Shell) -> None:
    shell.ok("topic", "create", "source", "target", "-p", "2")
    lines = [
        {"key": "k", "value": "text", "partition": 1, "timestamp": 1_700_000_000_000,
         "headers": [{"name": "h", "value": "x"}, {"name": "n", "value": None}]},
        {"key": None, "value": None, "partition": 0},
        {"key_base64": "/w==", "value": {"nested": [1, 2]}, "partition": 0},
    ]  # fmt: skip
    shell.ok("produce", "source", "-i", "json", stdin="\n".join(map(json.dumps, lines)))
    out = shell.ok("consume", "source", "-e", "--format", "json")
    shell.ok("produce", "target", "-i", "json", stdin=out)
    again = shell.ok("consume", "target", "-e", "--format", "json")
    assert sorted(out.replace('"source"', '"target"').splitlines()) == sorted(again.splitlines())
    records = [json.loads(line) for line in again.splitlines()]
    assert {record["timestamp"] for record in records if record["partition"] == 1} == {
        1_700_000_000_000
    }
    assert [r["value"] for r in records if r.get("key_base64") == "/w=="] == ['{"nested":[1,2]}']


def test_deliveries_are_reported_as_json(shell: Shell) -> None:
    shell.ok("topic", "create", "report", "-p", "4")
    out = shell.ok("produce", "report", "-p", "3", "--format", "json", stdin="a\nb\n")
    deliveries = [json.loads(line) for line in out.splitlines()]
    assert [(entry["partition"], entry["offset"]) for entry in deliveries] == [(3, 0), (3, 1)]


def test_reading_from_anywhere(shell: Shell) -> None:
    shell.ok("topic", "create", "places", "-p", "1")
    before = int(time.time() * 1000)
    shell.ok("produce", "places", stdin="".join(f"{n}\n" for n in range(10)))
    assert shell.ok("consume", "places", "-o", "7", "-e").split() == ["7", "8", "9"]
    assert shell.ok("consume", "places", "-o", "-2", "-e").split() == ["8", "9"]
    assert shell.ok("consume", "places", "-n", "3").split() == ["0", "1", "2"]
    assert shell.ok("consume", "places", "-o", f"@{before}", "-n", "1").split() == ["0"]
    assert shell.ok("consume", "places", "-o", "end", "-e") == ""
    assert shell.ok("topic", "trim", "places", "--before", "4", "--yes").split()[-1] == "4"
    assert shell.ok("consume", "places", "-e").split() == [str(n) for n in range(4, 10)]
    outside = shell.run("consume", "places", "-o", "2", "-e")
    assert outside.returncode == 1
    assert b"it holds 4 to 10" in outside.stderr
    missing = shell.run("consume", "places", "-p", "5", "-e")
    assert missing.returncode == 4
    assert b"no partition 5" in missing.stderr


def test_a_record_that_is_refused_is_an_error_and_the_others_are_stored(shell: Shell) -> None:
    shell.ok("topic", "create", "refuse", "-p", "1", "--set", "max.message.bytes=1000")
    done = shell.run("produce", "refuse", stdin="small\n" + "x" * 5000 + "\nlast\n")
    assert done.returncode == 1
    assert b"2 records delivered to refuse, 1 not delivered" in done.stderr
    assert b"1 not delivered: MESSAGE_TOO_LARGE" in done.stderr
    assert b"hint: raise max.message.bytes" in done.stderr
    assert shell.ok("consume", "refuse", "-e").split() == ["small", "last"]


def test_consume_follows_and_produce_sends_lines_as_they_come(shell: Shell) -> None:
    shell.ok("topic", "create", "follow", "-p", "1")
    reader = shell.start("consume", "follow")
    writer = shell.start("produce", "follow")
    try:
        assert writer.stdin is not None
        for word in (b"one\n", b"two\n"):
            writer.stdin.write(word)
            writer.stdin.flush()
            assert read_line(reader) == word, "a line is not held back for the next one"
        code, _, err = finish(writer)
        assert (code, err) == (0, b"2 records sent to follow\n")
        reader.send_signal(signal.SIGINT)
        assert finish(reader)[0] == 130
    finally:
        for process in (reader, writer):
            process.kill()
            process.communicate()


def test_a_reader_that_leaves_is_no_error(shell: Shell) -> None:
    shell.ok("topic", "create", "pipe", "-p", "1")
    shell.ok("produce", "pipe", stdin="".join(f"{n:0200}\n" for n in range(5000)))
    process = shell.start("consume", "pipe")
    try:
        assert read_line(process).strip() == b"0" * 200
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SECONDS_MAX) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.stdout = None
        process.communicate()


def test_a_terminal_gets_a_progress_line_and_a_pipe_gets_none(shell: Shell, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_text("".join(f"{n}\n" for n in range(50_000)))
    primary, secondary = pty.openpty()
    try:
        with source.open("rb") as lines:
            process = subprocess.Popen(
                shell.command("produce", "progress"), stdin=lines, stdout=subprocess.PIPE,
                stderr=secondary, env={**shell.environment, "TERM": "xterm"},
            )  # fmt: skip
        os.close(secondary)
        shown = b""
        while True:
            try:
                data = os.read(primary, 65536)
            except OSError:
                break
            shown += data
        assert process.wait(SECONDS_MAX) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""
        process.stdout.close()
    finally:
        os.close(primary)
    assert b"\r\x1b[K" in shown
    assert b" records, " in shown
    assert shown.endswith(b"50,000 records sent to progress\r\n")
    with source.open("rb") as lines:
        plain = shell.run("produce", "progress", "-q", stdin=lines.read())
    assert plain.stderr == b""


def test_cluster_info(shell: Shell, broker: BrokerProcess) -> None:
    info = json.loads(shell.ok("cluster", "info", "--format", "json"))
    assert [entry["port"] for entry in info["brokers"]] == [broker.port]
    assert info["without_leader"] == 0
    assert info["brokers"][0]["size"] > 0
    assert f"cluster id: {info['cluster_id']}" in shell.ok("cluster", "info")


def test_doctor_of_a_running_broker(shell: Shell, broker: BrokerProcess) -> None:
    healthy = json.loads(shell.run("doctor", "--format", "json").stdout)
    network = [finding for finding in healthy if finding["name"] not in OF_THIS_MACHINE]
    assert all(finding["ok"] for finding in network)
    assert [finding["name"] for finding in network] == [
        "name", "port", "protocol", "partitions", "advertised address",
    ]  # fmt: skip
    second = shell.run("doctor", "--listen", broker.bootstrap_servers, "--data-dir",
                       str(broker.data_dir))  # fmt: skip
    assert second.returncode == 1
    assert f"Port {broker.port} on 127.0.0.1 is taken".encode() in second.stdout
    assert f"is locked by another broker (process {broker.pid})".encode() in second.stdout


def test_doctor_names_the_address_to_advertise(tmp_path: Path) -> None:
    settings = {"advertised.listeners": "PLAINTEXT://broker.invalid:9092"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        done = Shell(broker).run("doctor")
        assert done.returncode == 1
        assert b"tells clients to use broker.invalid:9092" in done.stdout
        assert f"--advertise {broker.bootstrap_servers}".encode() in done.stdout


def test_topic_names_are_completed(shell: Shell) -> None:
    shell.ok("topic", "create", "completed-1", "completed-2")
    shell.environment |= {
        "_TIDELOG_COMPLETE": "bash_complete",
        "COMP_WORDS": "tidelog consume completed",
        "COMP_CWORD": "2",
    }
    assert shell.ok().split() == ["plain,completed-1", "plain,completed-2"]


def test_deleting_several_topics_says_which_are_gone_and_which_were_not_there(shell: Shell) -> None:
    shell.ok("topic", "create", "first", "second")
    done = shell.run("topic", "delete", "first", "secnod", "second", "--yes")
    assert done.returncode == 4
    said = b"first deleted\nsecond deleted\nerror: topic 'secnod' does not exist\nhint: "
    assert done.stderr.startswith(said)


def test_an_unknown_topic_is_answered_with_the_one_that_looks_like_it(shell: Shell) -> None:
    shell.ok("topic", "create", "orders")
    assert b"hint: did you mean `orders`?" in shell.run("consume", "oders", "-e").stderr


def test_nothing_is_deleted_before_it_is_confirmed(shell: Shell) -> None:
    shell.ok("topic", "create", "kept")
    shell.ok("produce", "kept", stdin="a\nb\n")
    for command in (["topic", "delete", "kept"], ["topic", "trim", "kept", "--before", "end"]):
        refused = shell.run(*command)
        assert refused.returncode == 2
        assert refused.stderr.endswith(b"hint: add --yes to do it in a script\n")
        assert answer_on_a_terminal(shell, command, "n") == 1
    assert shell.ok("consume", "kept", "-e").split() == ["a", "b"]
    assert answer_on_a_terminal(shell, ["topic", "trim", "kept", "--before", "1"], "y") == 0
    assert shell.ok("consume", "kept", "-e").split() == ["b"]


def answer_on_a_terminal(shell: Shell, command: list[str], answer: str) -> int:
    """Run a command with a terminal as its stdin, and answer its question."""
    ours, terminal = os.openpty()
    try:
        with subprocess.Popen(
            shell.command(*command), stdin=terminal, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, env=shell.environment,
        ) as process:  # fmt: skip
            os.write(ours, f"{answer}\n".encode())
            _, asked = process.communicate(timeout=SECONDS_MAX)
            assert b"? [y/N]: " in asked
            return process.returncode
    finally:
        os.close(ours)
        os.close(terminal)


@pytest.mark.java
def test_the_same_commands_work_against_apache_kafka() -> None:
    with ApacheKafka() as kafka:
        shell = Shell(kafka)
        shell.ok("topic", "create", "orders", "-p", "3", "--set", "retention.ms=60000")
        shell.ok("produce", "orders", "-K", ":", "-z", "lz4", stdin="a:1\nb:2\nc:3\n")
        out = shell.ok("consume", "orders", "-e", "-f", r"%k%v ")
        assert sorted(out.split()) == ["a1", "b2", "c3"]
        assert shell.ok("topic", "trim", "orders", "--before", "end", "-y").count("\n") == 4
        assert shell.ok("consume", "orders", "-e") == ""
        assert json.loads(shell.ok("cluster", "info", "--format", "json"))["partitions"] == 3
        assert shell.run("consume", "nowhere", "-e").returncode == 4
        shell.ok("topic", "delete", "orders", "-y")
