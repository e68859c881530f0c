"""`tidelog produce` and `consume` when the input, the reader or the broker fails them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.test_cli import SECONDS_MAX, Shell, finish, read_line
from tests.waiting import eventually


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("cli-produce") / "data"
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(data_dir, settings) as broker:
        yield broker


@pytest.fixture
def shell(broker: BrokerProcess) -> Shell:
    return Shell(broker)


@pytest.fixture
def topic(shell: Shell, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)[:100].replace("[", "-").replace("]", "")
    shell.ok("topic", "create", name, "-p", "1")
    return name


def write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def read_lines(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    """The first lines, which may come all at once."""
    assert process.stdout is not None
    return [read_line(process), *(process.stdout.readline() for _ in range(count - 1))]


def test_a_line_without_a_value_is_refused_with_its_number_and_the_lines_before_are_delivered(
    shell: Shell, topic: str
) -> None:
    lines = '{"value":"1"}\n\n{"value":null,"key":"k"}\n{"user":"ada"}\n{"value":"never"}\n'
    done = shell.run("produce", topic, "-i", "json", stdin=lines)
    assert (done.returncode, done.stdout) == (1, b"")
    said = done.stderr.decode().splitlines()
    assert said[0] == f"2 records delivered to {topic}"
    assert said[1].startswith('error: line 4: \'{"user":"ada"}\' is not a record:')
    assert "a record has no 'user'" in said[1]
    assert said[2].startswith("hint: ")
    assert "--whole" in said[2]
    assert shell.ok("consume", topic, "-e", "-f", r"%k:%V ").split() == [":1", "k:-1"]


def test_a_file_that_failed_in_the_middle_goes_on_with_the_command_that_was_printed(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    lines = [f'{{"value":"{each}","key":"{each}"}}' for each in range(100)]
    file = tmp_path / "some records.jsonl"
    file.write_text("\n".join([*lines[:60], "oops", *lines[60:]]) + "\n")
    command = shell.command("produce", topic, "-i", "json", "-p", "0")
    with file.open() as given:
        done = subprocess.run(
            command, stdin=given, capture_output=True, env=shell.environment, check=False
        )
    assert done.returncode == 1
    told = done.stderr.decode().splitlines()[-1]
    assert told.startswith("to go on: tidelog produce ")
    *typed, redirection, path = shlex.split(told.removeprefix("to go on: tidelog "))
    assert (redirection, path) == ("<", str(file))
    assert typed[-2:] == ["--skip-lines", "60"]
    file.write_text("\n".join([*lines[:60], "", *lines[60:]]) + "\n")
    shell.ok(*typed, stdin=file.read_text())
    read = shell.ok("consume", topic, "-e", "-f", "%v\\n").split()
    assert read == [str(each) for each in range(100)]


def test_a_whole_line_is_sent_as_the_value_where_that_is_asked_for(
    shell: Shell, topic: str
) -> None:
    line = '{ "user":"ada", "n": 1.50 }'
    shell.ok("produce", topic, "-i", "json", "--whole", stdin=line + "\n\n")
    assert shell.ok("consume", topic, "-e") == line + "\n"
    done = shell.run("produce", topic, "-i", "json", "--whole", stdin="{}\n{\n")
    assert done.returncode == 1
    assert b"1 record delivered" in done.stderr
    assert b"error: line 2: '{' is not JSON" in done.stderr
    assert shell.run("produce", topic, "--whole", stdin="x\n").returncode == 2


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["-K", ":"], "no separator"),
        (["--value-as", "hex"], "0g"),
        (["-f", "%p %v"], "x value"),
        (["-f", "%T %v"], f"{2**63} value"),
        (["-i", "json"], '{"value":"v","partition":7}'),
    ],
    ids=["separator", "encoding", "number", "timestamp", "partition"],
)
def test_every_form_of_input_names_the_line_that_it_cannot_send(
    shell: Shell, topic: str, options: list[str], line: str
) -> None:
    good = {"-K": "a:1", "--value-as": "00", "-i": '{"value":"v"}'}.get(options[0], "0 v")
    done = shell.run("produce", topic, *options, stdin=f"{good}\n{line}\n")
    assert done.returncode == (4 if "partition" in line else 1)
    assert f"1 record delivered to {topic}\nerror: line 2: ".encode() in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["-f", "%k"],
        ["-f", "%v %v"],
        ["-i", "json", "--value-as", "hex"],
        ["-i", "json", "--null", "NULL"],
        ["-f", "%v", "--key-as", "hex"],
    ],
)
def test_options_that_would_be_passed_over_are_wrong_usage(
    shell: Shell, options: list[str]
) -> None:
    done = shell.run("produce", "any", *options, stdin="x\n")
    assert done.returncode == 2
    assert b"hint: " in done.stderr


def test_an_interrupted_produce_says_how_many_records_were_delivered(
    shell: Shell, topic: str
) -> None:
    process = shell.start("produce", topic, "--format", "json")
    try:
        write(process, b"1\n2\n")
        assert [json.loads(each)["offset"] for each in read_lines(process, 2)] == [0, 1]
        process.send_signal(signal.SIGINT)
        code, out, err = finish(process)
        assert (code, out) == (130, b"")
        # Before it there may be a line that says what is waited for.
        assert f"interrupted: 2 records delivered to {topic}\n" in err.decode()
        assert err.decode().endswith("send the same input again with --skip-lines 2\n")
    finally:
        process.kill()
        process.communicate()


def test_a_second_interrupt_counts_what_was_sent_and_not_acknowledged(
    shell: Shell, topic: str, broker: BrokerProcess
) -> None:
    process = shell.start("produce", topic, "--format", "json", "--timeout", "60")
    try:
        write(process, b"1\n")
        read_line(process)
        os.kill(broker.pid, signal.SIGSTOP)
        write(process, b"2\n3\n")
        # The producer waits for the answer once both lines have been read from the pipe.
        assert process.stdin is not None
        eventually(lambda: waits_for_its_broker(process.pid, broker.port))
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline() == b"\n"
        assert b"press Ctrl-C again" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process)
        assert code == 130
        assert err.decode() == (
            f"interrupted: 1 record delivered to {topic}, 2 sent but not acknowledged"
            " (they may be stored)\nto go on: send the same input again with --skip-lines 1\n"
        )
    finally:
        os.kill(broker.pid, signal.SIGCONT)
        process.kill()
        process.communicate()


def waits_for_its_broker(pid: int, port: int) -> bool:
    """True once bytes lie in the socket of the stopped broker that the process has sent."""
    import psutil

    ends = {each.laddr for each in psutil.Process(pid).net_connections() if each.laddr}
    ports = {address.port for address in ends}
    with open("/proc/net/tcp", encoding="ascii") as table:
        for row in table.readlines()[1:]:
            _, local, remote, _, queues, *_ = row.split()
            ours = int(local.split(":")[1], 16) == port and int(remote.split(":")[1], 16) in ports
            if ours and int(queues.split(":")[1], 16) > 0:
                return True
    return False


def test_a_broker_that_goes_away_leaves_no_doubt_about_what_was_delivered(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"auto.create.topics.enable": "true"}) as broker:
        shell = Shell(broker)
        process = shell.start("produce", "gone", "--format", "json", "--timeout", "2")
        try:
            write(process, b"1\n2\n")
            read_lines(process, 2)
            broker.kill()
            write(process, b"3\n")
            code, _, err = finish(process)
        finally:
            process.kill()
            process.communicate()
    said = err.decode().splitlines()
    assert code == 3, said
    assert said[0].startswith("2 records delivered to gone, 1 ")
    assert said[1].startswith("error: ")
    assert said[2].startswith("hint: ")
    assert said[3] == "to go on: send the same input again with --skip-lines 2"


def test_records_are_delivered_although_nobody_reads_their_offsets(
    shell: Shell, topic: str
) -> None:
    process = shell.start("produce", topic, "--format", "json")
    try:
        write(process, b"first\n")
        read_line(process)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        write(process, b"second\nthird\n")
        code, _, err = finish(process)
        assert (code, err.decode()) == (0, f"3 records sent to {topic}\n")
    finally:
        process.kill()
        process.communicate()
    assert shell.ok("consume", topic, "-e").split() == ["first", "second", "third"]


def test_an_interrupted_consume_says_how_many_records_it_printed(shell: Shell, topic: str) -> None:
    shell.ok("produce", topic, stdin="1\n2\n")
    process = shell.start("consume", topic)
    try:
        assert read_lines(process, 2) == [b"1\n", b"2\n"]
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process)
        assert (code, err.strip()) == (130, b"interrupted after 2 records")
    finally:
        process.kill()
        process.communicate()


def test_a_group_does_not_commit_what_its_reader_never_took(shell: Shell, topic: str) -> None:
    count = 2000
    shell.ok("produce", topic, stdin="".join(f"{n:0500}\n" for n in range(count)))
    process = shell.start("consume", topic, "-g", "readers")
    try:
        assert int(read_line(process)) == 0
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.communicate()
    again = shell.ok("consume", topic, "-g", "readers", "-n", str(count))
    assert [int(line) for line in again.split()] == list(range(count))


def test_consume_says_which_offsets_were_deleted_under_it(shell: Shell, topic: str) -> None:
    shell.ok("produce", topic, stdin="1\n2\n3\n")
    shell.ok("consume", topic, "-g", "late", "-n", "1")
    shell.ok("topic", "trim", topic, "--before", "end", "--yes")
    shell.ok("produce", topic, stdin="4\n")
    done = shell.run("consume", topic, "-g", "late", "-n", "1")
    assert (done.returncode, done.stdout) == (0, b"4\n")
    assert done.stderr.decode() == f"{topic}-0: offsets 1 to 2 are deleted; going on at 3\n"
