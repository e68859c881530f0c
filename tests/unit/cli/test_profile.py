"""`--config client.properties`: what is read, what is refused, and who is warned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tidelog.cli.common import client_settings, connection_options, open_client
from tidelog.cli.main import cli
from tidelog.cli.profile import VARIABLE, read_profile
from tidelog.cli.topic import create
from tidelog.errors import ConfigError

_SECURED = """
bootstrap.servers = kafka.example:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" password="canary-51";
ssl.truststore.location=/etc/ca.pem
acks=all
group.id=left-alone
"""


def written(directory: Path, text: str = _SECURED, mode: int = 0o600) -> str:
    file = directory / "client.properties"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


@click.command()
@connection_options
def probe(**options: Any) -> None:
    with open_client(**options) as client:
        security = client.cluster.settings.security
    click.echo(json.dumps([options["bootstrap"], security.protocol]))


def test_a_file_gives_brokers_and_security(tmp_path: Path) -> None:
    file = written(tmp_path)
    profile = read_profile(file)
    assert profile.bootstrap == "kafka.example:9093"
    assert profile.security.sasl is not None
    assert profile.security.sasl.password == "canary-51"
    assert "canary-51" not in repr(profile)
    for arguments, environment in (
        (["--config", file], {}),
        (["--command-config", file], {}),
        ([], {VARIABLE: file}),
    ):
        done = CliRunner().invoke(probe, arguments, env=environment)
        assert json.loads(done.stdout) == ["kafka.example:9093", "SASL_SSL"], done.output


def test_the_option_for_brokers_wins_over_the_file(tmp_path: Path) -> None:
    done = CliRunner().invoke(probe, ["--config", written(tmp_path), "-b", "other:1"])
    assert json.loads(done.stdout) == ["other:1", "SASL_SSL"]
    done = CliRunner().invoke(probe, [])
    assert json.loads(done.stdout) == ["127.0.0.1:9092", "PLAINTEXT"]


def test_outside_a_command_nothing_is_secured() -> None:
    assert client_settings(1.0).security.protocol == "PLAINTEXT"


def test_a_file_with_secrets_that_others_may_read_gets_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mode, warned in ((0o600, False), (0o640, True), (0o644, True)):
        read_profile(written(tmp_path, mode=mode))
        said = capsys.readouterr().err
        assert ("others may read it; `chmod 600" in said) is warned
        assert "canary-51" not in said
    read_profile(written(tmp_path, "security.protocol=SSL\n", 0o644))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listeners=PLAINTEXT://:9092\n", "is a broker's file: it has listeners"),
        ("security.protocol=NONE\n", "security.protocol is 'NONE'"),
        ("security.protocol=SSL\nssl.provider=x\n", "ssl.provider is not supported"),
    ],
)
def test_a_file_that_is_no_use_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_profile(written(tmp_path, text))
    assert words in str(refused.value)
    assert "client.properties" in str(refused.value)


def test_a_file_that_is_missing_is_a_wrong_usage(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["topic", "list", "--config", str(tmp_path / "none")])
    assert done.exit_code != 0
    assert "none: No such file" in done.output


def test_kafkas_way_to_set_up_a_topic_is_still_understood(tmp_path: Path) -> None:
    file = written(tmp_path)
    context = create.make_context(
        "create", ["orders", "--config", "retention.ms=1", "--config", file]
    )
    assert context.params["configs"] == ("retention.ms=1",)
    assert context.params["bootstrap"] == "kafka.example:9093"


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found: list[tuple[str, click.Command]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += _commands(command, (*path, name))
        else:
            found.append((" ".join((*path, name)), command))
    return found


def test_every_command_that_asks_a_broker_takes_a_profile() -> None:
    asking = 0
    for name, command in _commands(cli):
        options = {option for each in command.params for option in each.opts}
        if "--bootstrap-server" in options:
            asking += 1
            assert {"--config", "--command-config"} <= options, name
    assert asking >= 27
