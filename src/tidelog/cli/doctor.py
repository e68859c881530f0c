"""`tidelog doctor`: look for the usual causes, and name each in a sentence with its remedy.

What it looks at follows from what it is told: a broker to talk to (`-b`, the default), with
`--metrics` whether its event loop is the limit, and with `--listen`, `--data-dir` and
`--broker-config` whether a broker could be started here.
"""

from __future__ import annotations

import os
import sys

import click

from tidelog.cli import doctor_host as host
from tidelog.cli import doctor_loop as loop
from tidelog.cli import doctor_network as network
from tidelog.cli import doctor_spark as spark
from tidelog.cli.common import bootstrap_option, format_option, print_json, timeout_option
from tidelog.cli.faults import EXIT_FAILED, paint
from tidelog.cli.finding import Finding
from tidelog.cli.profile import profile_option
from tidelog.client.metadata import parse_bootstrap
from tidelog.host.disk import SystemDisk


@click.command()
@bootstrap_option
@profile_option
@format_option
@click.option("--tls", is_flag=True, help="Clients use TLS.")
@click.option("--listen", metavar="HOST:PORT", help="Check whether a broker could listen here.")
@click.option("--data-dir", metavar="DIR", help="Check a data directory.")
@click.option(
    "--broker-config",
    "files",
    multiple=True,
    metavar="FILE",
    help="Check a broker's configuration file.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Read metrics from this address.")
@timeout_option(3.0, "How long to wait for each answer.")
@click.pass_context
def doctor(
    context: click.Context,
    bootstrap: str,
    output: str,
    tls: bool,
    listen: str | None,
    data_dir: str | None,
    files: tuple[str, ...],
    metrics: str | None,
    timeout_s: float,
) -> None:
    """Diagnose connection and configuration problems.

    \b
    tidelog doctor -b broker.example:9092
    tidelog doctor -b broker.example:9093 --config client.properties
    tidelog doctor -b broker.example:9092 --metrics broker.example:9100
    tidelog doctor --listen 0.0.0.0:9092 --data-dir /var/lib/tidelog \\
        --broker-config broker.properties

    Exits with 1 if it finds a problem.
    """
    findings = list(host.examine(os.environ, SystemDisk(), host.Plan(listen, data_dir, files)))
    # Who asks about a broker to be started does not ask about one that runs.
    starting = listen is not None or data_dir is not None or bool(files)
    if not starting:
        findings += spark.examine(os.environ)
    named = context.get_parameter_source("bootstrap") is not click.core.ParameterSource.DEFAULT
    if named or not starting:
        for address in parse_bootstrap(bootstrap):
            findings += network.examine(address, timeout_s, tls=tls)
    if metrics is not None:
        findings.append(loop.examine(metrics, timeout_s))
    if output == "json":
        print_json([finding.as_json() for finding in findings])
    else:
        for finding in findings:
            _show(finding)
    if not all(finding.ok for finding in findings):
        context.exit(EXIT_FAILED)


def _show(finding: Finding) -> None:
    mark = paint("ok   ", "32", sys.stdout) if finding.ok else paint("FAULT", "31", sys.stdout)
    click.echo(f"{mark}  {finding.name}: {finding.sentence}")
    if finding.hint:
        click.echo(f"       hint: {finding.hint}")
