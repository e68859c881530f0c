"""The `tidelog` command: nouns then verbs, each noun's module imported when it is called.

Data goes to stdout, words to stderr; an error ends with a hint. Only the module of the command
that was called is imported, which keeps a short command under 150 ms.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NoReturn

import click

from tidelog.cli.faults import EXIT_INTERRUPTED, EXIT_USAGE, CliError, show
from tidelog.cli.suggest import explain_with_suggestion, suggest_command
from tidelog.errors import TidelogError
from tidelog.version import VERSION

# name: (module, attribute, one line for --help), in the order of --help.
_COMMANDS = {
    "up": ("tidelog.cli.up", "up", "Start a broker or a cluster for development."),
    "broker": ("tidelog.cli.broker", "broker", "Run one broker in production."),
    "topic": ("tidelog.cli.topic", "topic", "Create, inspect, change and delete topics."),
    "produce": ("tidelog.cli.produce", "produce", "Send records from stdin to a topic."),
    "consume": ("tidelog.cli.consume", "consume", "Print the records of a topic."),
    "group": ("tidelog.cli.group", "group", "Inspect groups, reset their offsets, delete them."),
    "user": ("tidelog.cli.user", "user", "Create and delete users, change passwords."),
    "acl": ("tidelog.cli.acl", "acl", "Manage access-control lists, and explain them."),
    "quota": ("tidelog.cli.quota", "quota", "Manage client quotas."),
    "txn": ("tidelog.cli.txn", "txn", "Inspect transactions and abort hanging ones."),
    "why": ("tidelog.cli.why", "why", "Explain why consumers are stuck in a partition."),
    "cluster": ("tidelog.cli.cluster", "cluster", "Inspect and manage the cluster."),
    "pipeline": ("tidelog.cli.pipeline", "pipeline", "Run pipelines declared in a file on Spark."),
    "audit": ("tidelog.cli.audit", "audit", "Read and verify a broker's audit log."),
    "doctor": ("tidelog.cli.doctor", "doctor", "Diagnose connection and configuration problems."),
    "completion": ("tidelog.cli.completion", "completion", "Print a shell completion script."),
}

_EPILOG = """\b
Exit codes:
  0    success
  1    failure: the broker refused, an input line or a record could not be sent, a pipeline or one
       of its tests failed, doctor found a problem, or an audit log was tampered with
  2    wrong usage, or an invalid pipeline file
  3    no broker could be reached in time
  4    the topic, partition, group, transactional id or user does not exist
  130  interrupted
"""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            result: object = super().invoke(ctx)
            # Flushed here, so that a reader who left is noticed here too.
            sys.stdout.flush()
            return result
        except click.UsageError as error:
            suggest_command(error)
            raise
        except BrokenPipeError:
            _silence_stdout()
            ctx.exit(0)
        except TidelogError as error:
            raise explain_with_suggestion(error) from error


def _silence_stdout() -> None:
    """The reader has left, as `| head` does: that is no error, and nothing more is written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=LazyGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(
    VERSION, "-V", "--version", prog_name="tidelog", message="%(prog)s %(version)s"
)
def cli() -> None:
    """Tidelog, a commit log that speaks Kafka's protocol."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    try:
        code = cli.main(arguments, prog_name="tidelog", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except click.ClickException as error:
        show(error)
        sys.exit(error.status if isinstance(error, CliError) else error.exit_code)
    except click.Abort:
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)
