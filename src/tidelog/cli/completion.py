"""`tidelog completion`: what a shell needs to complete commands, options and topic names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_HOW = {
    "bash": 'eval "$(tidelog completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(tidelog completion zsh)"    # in ~/.zshrc',
    "fish": "tidelog completion fish | source    # in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(_HOW.values()))
@click.argument("shell", type=click.Choice(list(_HOW)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, "click completes these shells"
    root = context.find_root().command
    click.echo(kind(root, {}, "tidelog", "_TIDELOG_COMPLETE").source())
