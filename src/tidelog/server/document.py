"""Writes the page of what is served from the handlers' docstrings and the tables of APIs.

`python -m tidelog.server.document` prints it; with `--write PATH` it goes to a file. A handler
module's docstring has a first paragraph that names its APIs, and then a text whose parts begin, at
the start of a line, with "Behaviour:", "Versions:" or "Gaps:".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from tidelog.config.document import main
from tidelog.protocol.apis import APIS, Api
from tidelog.protocol.schema import NEVER_FLEXIBLE
from tidelog.server.authorization import AUTHORIZATION
from tidelog.server.routes import handler_module

_INTRODUCTION: Final = """\
# Protocol support

This page is generated from the handlers' own descriptions and the table of APIs (`python -m
tidelog.server.document --write docs/protocol-support.md`); a test fails when it differs.

These are all APIs of Kafka's protocol that a broker supports. A request for another API, or for a
version outside these, closes its connection and is logged, as in Kafka; only ApiVersions answers an
unknown version, so that a newer client can fall back. Record batches have format v2; older message
formats are neither accepted nor stored.
"""
_PERMISSIONS: Final = """\
## Permissions

The permissions that a client needs if access-control lists are enabled, as in Apache Kafka. A
denial is an error instead of the *whole* answer, an error for *each* refused item, or not visible
at all: a *hidden* resource looks as if it did not exist. Read, Write, Delete and Alter imply
Describe, AlterConfigs implies DescribeConfigs. ClusterAction is only for brokers of the cluster,
which authenticate as such: no permission replaces it.

| API | permission | when | denial |
|---|---|---|---|
"""
_LABEL: Final = re.compile(r"^(Behaviour|Versions|Gaps): ", re.MULTILINE)


def document() -> str:
    """The whole page, in Markdown."""
    parts = [_INTRODUCTION, _table(APIS)]
    for module, members in _by_module(APIS).items():
        heading = ", ".join(api.name for api in members)
        parts.append(f"## {heading}\n\n{_section(module)}")
    parts.append(_PERMISSIONS + "".join(map(_permissions, APIS)))
    return "\n".join(parts)


def _by_module(apis: Sequence[Api]) -> dict[str, list[Api]]:
    grouped: dict[str, list[Api]] = {}
    for api in apis:
        grouped.setdefault(handler_module(api.name), []).append(api)
    return grouped


def _table(apis: Sequence[Api]) -> str:
    lines = ["| key | API | served | advertised | flexible from |", "|---|---|---|---|---|"]
    for api in apis:
        flexible = "never" if api.flexible == NEVER_FLEXIBLE else str(api.flexible)
        served, advertised = _range(api.served), _range(api.advertised)
        lines.append(f"| {api.key} | {api.name} | {served} | {advertised} | {flexible} |")
    return "\n".join(lines) + "\n"


def _permissions(api: Api) -> str:
    """The rows of what an API asks; one that asks nothing is open to everybody."""
    rows = []
    for each in AUTHORIZATION[api.name]:
        needed = [(each.operation, each.resource)]
        if each.otherwise is not None:
            needed.append(each.otherwise)
        permission = ", or ".join(
            f"{_words(operation.name)} on {_words(kind.name)}" for operation, kind in needed
        )
        when = each.when or "always"
        rows.append(f"| {api.name} | {permission} | {when} | {each.denial.value} |\n")
    return "".join(rows) or f"| {api.name} | none | | |\n"


def _words(name: str) -> str:
    """As Kafka's tools write it: `DESCRIBE_CONFIGS` is DescribeConfigs."""
    return name.title().replace("_", "")


def _range(versions: tuple[int, int]) -> str:
    first, last = versions
    return str(first) if first == last else f"{first}–{last}"


def _section(module: str) -> str:
    """What follows the first paragraph of a module's docstring, its labels set off."""
    text = import_module(module).__doc__ or ""
    _, _, body = text.partition("\n\n")
    if not body.strip():
        raise ValueError(f"{module} does not describe what it serves")
    marked = _LABEL.sub(lambda match: f"\n**{match[1]}:** ", body.strip())
    return marked.strip() + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], document, "tidelog.server.document"))
