"""Templates print records and read lines."""

from __future__ import annotations

import pytest

from tidelog.cli.faults import CliError
from tidelog.cli.template import parse_header, printer, reader
from tidelog.model import TopicPartition
from tidelog.protocol.batches import Record

TP = TopicPartition("orders", 3)
RECORD = Record(
    offset=42,
    timestamp=1_700_000_000_123,
    key=b"k1",
    value=b'{"total":9}',
    headers=[("source", b"shop"), ("flag", None)],
)


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        (r"%t[%p]@%o\n", b"orders[3]@42\n"),
        (r"%k=%v", b'k1={"total":9}'),
        (r"%s\t%S\t%K", b'{"total":9}\t11\t2'),
        (r"%V", b"11"),
        (r"%T %T{iso}", b"1700000000123 2023-11-14T22:13:20.123Z"),
        (r"%k{hex} %k{base64}", b"6b31 azE="),
        (r"%v{json}", b'{"total": 9}'),
        (r"%h", b"source=shop,flag"),
        (r"100%% \x41\0\\n", b"100% A\0\\n"),
        ("plain", b"plain"),
        ("é%k", "ék1".encode()),
    ],
)
def test_a_record_is_printed_as_the_template_says(template: str, printed: bytes) -> None:
    assert printer(template)(TP, RECORD) == printed


def test_null_is_printed_as_nothing_and_has_length_minus_one() -> None:
    empty = Record(offset=0, timestamp=0, key=None, value=None)
    assert printer("[%k|%v|%K|%V|%v{json}]")(TP, empty) == b"[||-1|-1|null]"


@pytest.mark.parametrize("template", ["%", "%x", "%v{rot13}", "%p{hex}", "50% of %v"])
def test_a_field_without_a_meaning_is_named(template: str) -> None:
    with pytest.raises(CliError) as caught:
        printer(template)
    assert caught.value.status == 2


def test_a_line_is_read_as_the_template_says() -> None:
    read = reader(r"%p %T %k{hex}:%h|%v\n", "orders")
    record = read(b"2 1700 6b31:a=1,b|text: with | all sorts")
    assert (record.partition, record.timestamp_ms, record.key) == (2, 1700, b"k1")
    assert record.headers == [("a", b"1"), ("b", None)]
    assert record.value == b"text: with | all sorts"
    assert record.topic == "orders"


def test_a_line_that_does_not_fit_is_shown() -> None:
    with pytest.raises(CliError, match="does not fit"):
        reader("%k:%v", "t")(b"no colon here")
    with pytest.raises(CliError, match="not a number"):
        reader("%p %v", "t")(b"x y")
    with pytest.raises(CliError, match="not hex"):
        reader("%v{hex}", "t")(b"xyz")
    with pytest.raises(CliError, match="cannot be read"):
        reader("%o %v", "t")


def test_headers() -> None:
    assert parse_header("a=b=c") == ("a", b"b=c")
    assert parse_header("a=") == ("a", b"")
    assert parse_header("a") == ("a", None)
    with pytest.raises(CliError):
        parse_header("=b")
