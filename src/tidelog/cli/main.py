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
    "up": ("tidelog.cli.up", "up", "Start a broker here and now, for development."),
    "broker": ("tidelog.cli.broker", "broker", "Run one broker for production."),
    "topic": ("tidelog.cli.topic", "topic", "Create, look at, change and delete topics."),
    "produce": ("tidelog.cli.produce", "produce", "Send records from stdin to a topic."),
    "consume": ("tidelog.cli.consume", "consume", "Print the records of a topic."),
    "group": ("tidelog.cli.group", "group", "Look at groups, move and delete them."),
    "user": ("tidelog.cli.user", "user", "Create and delete users, change their passwords."),
    "acl": ("tidelog.cli.acl", "acl", "Say who may do what, and find out why."),
    "quota": ("tidelog.cli.quota", "quota", "Limit what clients may use."),
    "txn": ("tidelog.cli.txn", "txn", "Look at transactions, and end those that nobody ends."),
    "why": ("tidelog.cli.why", "why", "Say why readers do not get on in a partition."),
    "cluster": ("tidelog.cli.cluster", "cluster", "Look at the cluster."),
    "pipeline": ("tidelog.cli.pipeline", "pipeline", "Run pipelines declared in a file, on Spark."),
    "audit": ("tidelog.cli.audit", "audit", "Read and check the audit log of a broker."),
    "doctor": ("tidelog.cli.doctor", "doctor", "Find out why it does not work."),
    "completion": ("tidelog.cli.completion", "completion", "Print the completion of a shell."),
}

_EPILOG = """\b
Exit codes:
  0    done
  1    the broker refused, a line of the input was not a record, a record was not delivered, a
       pipeline or one of its tests failed, doctor found a fault, or an audit log was changed
  2    wrong usage, or a pipeline's file that cannot be run
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
