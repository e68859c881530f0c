"""YAML files of settings are read strictly, and their scalars stay text."""

import pytest

from tidelog.config.properties_file import Entry
from tidelog.config.yaml_file import read_yaml
from tidelog.errors import ConfigError


def pairs(text: str) -> dict[str, str]:
    return {entry.name: entry.text for entry in read_yaml(text, "f.yaml")}


def test_flat_and_nested_names_mean_the_same() -> None:
    flat = "log.segment.bytes: 1048576\nlog.roll.ms: 5\n"
    nested = "log:\n  segment:\n    bytes: 1048576\n  roll.ms: 5\n"
    assert pairs(flat) == pairs(nested) == {"log.segment.bytes": "1048576", "log.roll.ms": "5"}


@pytest.mark.parametrize(
    "text", ["no", "yes", "on", "true", "null", "~", "0x10", "012", "1_000", "2024-01-01", "1e3"]
)
def test_a_scalar_is_the_text_as_written(text: str) -> None:
    assert pairs(f"a: {text}") == {"a": text}


def test_quotes_are_taken_off_and_nothing_is_empty() -> None:
    assert pairs("a: 'x: y'\nb: \"\\u0041\"\nc:\n") == {"a": "x: y", "b": "A", "c": ""}


def test_a_sequence_is_a_list() -> None:
    text = "listeners:\n- A://h:1\n- B://h:2\nlog.dirs: [/a, /b]\nempty: []\n"
    assert pairs(text) == {"listeners": "A://h:1,B://h:2", "log.dirs": "/a,/b", "empty": ""}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "{}"])
def test_an_empty_document_sets_nothing(text: str) -> None:
    assert pairs(text) == {}


def test_an_entry_names_its_line() -> None:
    assert read_yaml("# c\nlog:\n  dirs: /a\n", "f.yaml") == [Entry("log.dirs", "/a", "f.yaml:3")]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: 1\na: 2", r"f.yaml:2: a was set before at f.yaml:1"),
        ("a.b: 1\na:\n  b: 2", r"f.yaml:3: a.b was set before at f.yaml:1"),
        ("a: &x 1\nb: *x", r"f.yaml:2: aliases are not allowed"),
        ('a: "\\U00000041"\nb: "\\UFFFFFFFF"', r"f.yaml:2: there is no character of this number"),
        ('a: "\\U00110000"', r"f.yaml:1: there is no character of this number"),
        ("a: !!int 1", r"f.yaml:1: the tag .*int is not allowed"),
        ("a: !!python/object:os.system x", r"f.yaml:1: the tag .* is not allowed"),
        ("!x {a: 1}", r"f.yaml:1: the tag !x is not allowed"),
        ("a: 1\n---\nb: 2", r"f.yaml:2: a second document"),
        ("- a", r"f.yaml:1: a mapping of names"),
        ("just text", r"f.yaml:1: a mapping of names"),
        ("a: [[1]]", r"f.yaml:1: an item of a list"),
        ("a: [{b: 1}]", r"f.yaml:1: an item of a list"),
        ("? [a]\n: 1", r"f.yaml:1: a name is expected"),
        ("'': 1", r"f.yaml:1: a name is expected"),
        ("a: 1\nb: [1", r"f.yaml:2: "),
        ("a: 1\n\tb: 2", r"f.yaml:2: "),
        ("a: \x00", r"f.yaml"),
    ],
)
def test_what_is_not_plain_is_refused_with_its_line(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        read_yaml(text, "f.yaml")


def test_nesting_has_an_end() -> None:
    with pytest.raises(ConfigError, match="nested more than 16 deep"):
        read_yaml("{a: " * 17 + "1" + "}" * 17, "f.yaml")
