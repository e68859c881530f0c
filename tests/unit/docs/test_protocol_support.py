"""The page of served APIs is what the handlers and the table of APIs say."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tidelog.protocol.apis import APIS, Api
from tidelog.server.document import document, main
from tidelog.server.routes import handler_module

ROOT = Path(__file__).parents[3]


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "protocol-support.md").read_text(encoding="utf-8")
    assert page == document(), (
        "run: python -m tidelog.server.document --write docs/protocol-support.md"
    )


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_handler_names_its_api_and_the_versions_that_the_table_has(api: Api) -> None:
    text = import_module(handler_module(api.name)).__doc__ or ""
    title = " ".join(text.split("\n\n")[0].split())
    # "Fetch (key 1), versions 4 to 16" or "CreateTopics (19, versions 2 to 7), DeleteTopics (20, …"
    own = title[title.index(f"{api.name} (") :].removeprefix(api.name)
    own = own.split("), ")[0] if not own.startswith(" (key") else own
    assert str(api.key) in own
    assert f"{api.served[0]} to {api.served[1]}" in own


def test_every_served_api_has_a_row_and_a_section() -> None:
    page = document()
    for api in APIS:
        assert f"| {api.key} | {api.name} | " in page
        headings = [line for line in page.splitlines() if line.startswith("## ")]
        assert any(api.name in line.removeprefix("## ").split(", ") for line in headings), api.name


def test_the_page_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], document, "tidelog.server.document") == 0
    assert capsys.readouterr().out == document()
    path = tmp_path / "page.md"
    assert main(["--write", str(path)], document, "tidelog.server.document") == 0
    assert path.read_text(encoding="utf-8") == document()
    assert main(["--wrong"], document, "tidelog.server.document") == 2
    assert "usage" in capsys.readouterr().err
