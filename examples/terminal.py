"""What the tour shows: headings, the commands a user would type, and what they really print."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

TIDELOG = [sys.executable, "-m", "tidelog"]
COMMAND_SECONDS_MAX = 60.0


def paint(text: str, colour: str) -> str:
    """Text in a colour, where a terminal shows it and nobody forbids it."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


def heading(text: str) -> None:
    print(f"\n{paint('== ' + text, '1;36')}", flush=True)


def note(text: str) -> None:
    print(paint(text, "2"), flush=True)


def show_command(command: str) -> None:
    print(paint("$ ", "32") + paint(command, "1"), flush=True)


def show_output(text: str, lines_max: int = 12) -> None:
    """Indented; of long output the first lines and a count of the rest."""
    lines = text.splitlines()
    for line in lines[:lines_max]:
        print(f"  {line}")
    if len(lines) > lines_max:
        print(f"  ... and {len(lines) - lines_max:,} more lines")
    sys.stdout.flush()


def tidelog(*arguments: str, stdin: str = "") -> str:
    """Run a command of Tidelog, showing it and all it prints; its standard output."""
    command = shlex.join(["tidelog", *arguments])
    if stdin:
        command = f"printf {shlex.quote(stdin.replace(chr(10), chr(92) + 'n'))} | {command}"
    show_command(command)
    return run_quietly(*arguments, stdin=stdin, show=True)


def run_quietly(*arguments: str, stdin: str = "", show: bool = False) -> str:
    """Run a command of Tidelog; its standard output, or an error with what it said."""
    done = subprocess.run(
        [*TIDELOG, *arguments],
        check=False,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )
    if show or done.returncode:
        show_output(done.stdout)
        show_output(done.stderr)
    if done.returncode:
        raise RuntimeError(f"tidelog {arguments[0]} ended with exit code {done.returncode}")
    return done.stdout
