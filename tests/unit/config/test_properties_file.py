"""Properties files are read as Java reads them."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.config.properties_file import Entry, read_properties
from tidelog.errors import ConfigError

JAVA_READER = """
import java.io.*; import java.util.*;
public class Reader {
  public static void main(String[] arguments) throws Exception {
    for (String name : arguments) {
      Properties properties = new Properties();
      try (InputStream input = new FileInputStream(name)) { properties.load(input); }
      StringBuilder line = new StringBuilder();
      for (String key : new TreeSet<>(properties.stringPropertyNames()))
        line.append(hex(key)).append('=').append(hex(properties.getProperty(key))).append(';');
      System.out.println(line);
    }
  }
  static String hex(String text) {
    StringBuilder out = new StringBuilder();
    for (char unit : text.toCharArray()) out.append(String.format("%04x", (int) unit));
    return out.toString();
  }
}
"""


def pairs(text: str) -> list[tuple[str, str]]:
    return [(entry.name, entry.text) for entry in read_properties(text, "f")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("a:b", [("a", "b")]),
        ("a b", [("a", "b")]),
        ("  a \t = \f b c  ", [("a", "b c  ")]),
        ("a = =b", [("a", "=b")]),
        ("a", [("a", "")]),
        ("=b", [("", "b")]),
        ("# c\n! d\n\n  # e\na=b # not a comment", [("a", "b # not a comment")]),
        ("a=1,\\\n   2,\\\n\t3\nb=4", [("a", "1,2,3"), ("b", "4")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\", [("a", "b")]),
        ("\\\n# c\na=b", [("a", "b")]),
        ("a\\=b\\:c\\ d=e", [("a=b:c d", "e")]),
        ("a=\\t\\n\\r\\f\\q\\u0041\\u00e9", [("a", "\t\n\r\fqAé")]),
        ("a=\\ud83d\\ude00", [("a", "😀")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("", []),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_an_entry_names_the_line_it_begins_on() -> None:
    entries = read_properties("# one\na=1,\\\n2\n\nb=3\n", "conf/server.properties")
    assert entries == [
        Entry("a", "1,2", "conf/server.properties:2"),
        Entry("b", "3", "conf/server.properties:5"),
    ]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u-123", "a=\\u 123"])
def test_a_broken_unicode_escape_names_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"f:2: .*four hexadecimal digits"):
        read_properties("\n" + text, "f")


def escaped(text: str) -> str:
    """What Java's own writer makes of a name or a value, every special sign escaped."""
    units = memoryview(text.encode("utf-16-be")).cast("B")
    codes = [units[index] << 8 | units[index + 1] for index in range(0, len(units), 2)]
    return "".join(
        f"\\u{code:04x}"
        if not 0x21 <= code < 0x7F
        else ("\\" + chr(code) if chr(code) in "=:#!\\" else chr(code))
        for code in codes
    )


def test_whatever_is_written_with_escapes_is_read_back() -> None:
    runs = 0

    @settings(max_examples=300)
    @given(st.dictionaries(st.text(min_size=1, max_size=12), st.text(max_size=20), max_size=6))
    def run(mapping: dict[str, str]) -> None:
        nonlocal runs
        runs += 1
        text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in mapping.items())
        assert dict(pairs(text)) == mapping

    run()
    assert runs >= 300


HOSTILE = st.text(st.sampled_from("ab=:#!\\ \t\f\r\nu0é"), max_size=40)


@pytest.mark.java
def test_hostile_files_are_read_as_by_java_itself(tmp_path: Path) -> None:
    texts: list[str] = []

    @settings(max_examples=400, database=None)
    @given(HOSTILE)
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    readable = [text for text in texts if "\\u" not in text]
    assert len(readable) >= 300
    source = tmp_path / "Reader.java"
    source.write_text(JAVA_READER)
    files = []
    for number, text in enumerate(readable):
        file = tmp_path / f"{number}.properties"
        file.write_bytes(text.encode("latin-1"))
        files.append(str(file))
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", str(source), *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    for text, line in zip(readable, done.stdout.splitlines(), strict=True):
        by_java = {
            bytes.fromhex(name).decode("utf-16-be"): bytes.fromhex(value).decode("utf-16-be")
            for name, value in (pair.split("=") for pair in line.split(";") if pair)
        }
        # A lone backslash at the end of a file is a nameless empty pair to Java and nothing to us:
        # pairs without a name, which are errors anyway, are left out.
        named = {name: value for name, value in pairs(text) if name}
        by_java.pop("", None)
        assert named == by_java, repr(text)
