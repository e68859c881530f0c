"""The tests in a pipeline's file: given records in, expected rows out, no broker.

A line of a given file is a record (an object with `value` and no names but a record's) or else the
value alone: JSON, or any text, so that bad records can be given too. The pipeline is run as a batch
and what each target would write is compared with the expected lines, in any order. A topic's lines
are values, or records with `key` and `value`; a table's are its rows as JSON. `SOURCE.bad` expects
the values of dead letters.
"""

from __future__ import annotations

import json
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.client.record_json import field_bytes, field_headers, field_integer
from tidelog.pipelines.declare.check import BAD_SUFFIX, Checked
from tidelog.pipelines.declare.pipeline import Pipeline, PipelineError, Source, TableSink, TestCase
from tidelog.pipelines.run.plan import Plan
from tidelog.pipelines.run.rows import quoted, record_schema

_FIELDS: Final = frozenset(
    {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
    | {"key_base64", "value_base64"}
)
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Difference:
    """What was expected and did not come, and what came and was not expected."""

    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CaseResult:
    """One test; it passed where no target differs."""

    name: str
    rows: dict[str, int]
    differences: dict[str, Difference]

    @property
    def passed(self) -> bool:
        return not self.differences


def run_case(
    session: SparkSession, pipeline: Pipeline, checked: Checked, case: TestCase
) -> CaseResult:
    """Run one test; PipelineError where a file of it cannot be read."""
    given = {name: list(_read_records(path, pipeline.sources[name]))
             for name, path in case.given.items()}  # fmt: skip

    def records(into: SparkSession, source: Source, columns: list[str]) -> DataFrame:
        rows = [tuple(row[name] for name in columns) for row in given.get(source.name, ())]
        return into.createDataFrame(rows, record_schema(columns))

    plan = Plan(session, pipeline, checked, records)
    result = CaseResult(case.name, {}, {})
    for name, path in case.expect.items():
        expected = [_parse(line) for _, line in _lines(path)]
        whole = bool(expected) and all(_is_record(each) for each in expected)
        actual = _outputs(plan, name, whole=whole)
        result.rows[name] = len(actual)
        difference = compare([_canonical(each) for each in expected],
                             [_canonical(each) for each in actual])  # fmt: skip
        if difference is not None:
            result.differences[name] = difference
    return result


def compare(expected: list[str], actual: list[str]) -> Difference | None:
    """The difference of two bags of lines; None where they are the same."""
    wanted, came = Counter(expected), Counter(actual)
    if wanted == came:
        return None
    return Difference(sorted((wanted - came).elements()), sorted((came - wanted).elements()))


def _outputs(plan: Plan, name: str, *, whole: bool) -> list[Any]:
    """What a target, or the dead letters of a source, would be given."""
    target = plan.pipeline.targets.get(name)
    if target is not None and isinstance(target.sink, TableSink):
        rows = plan.target(target)
        texts = rows.select(
            F.to_json(F.struct(*(quoted(name) for name in rows.columns))).alias("row")
        ).collect()
        return [json.loads(row["row"]) for row in texts]
    if target is not None:
        records = plan.target(target)
    else:
        records = plan.dead_letters(plan.pipeline.sources[name.removesuffix(BAD_SUFFIX)])
    columns = ["key", "value"] if whole and "key" in records.columns else ["value"]
    found = []
    for row in records.select(*columns).collect():
        value = _parse(_text(row["value"]))
        key = _text(row["key"]) if "key" in columns else None
        found.append({"key": key, "value": value} if whole else value)
    return found


def _text(value: Any) -> str | None:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    return None if value is None else str(value)


# ---- files ----------------------------------------------------------------------------------


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with its number."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path}: {error}") from None
    return ((at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip())


def _parse(line: str | None) -> Any:
    """JSON where it is JSON, and the text itself where it is not."""
    try:
        return json.loads(line) if line is not None else None
    except ValueError:
        return line


def _is_record(value: Any) -> bool:
    if not isinstance(value, dict) or not value.keys() <= _FIELDS:
        return False
    return "value" in value or "value_base64" in value


def _read_records(path: Path, source: Source) -> Iterator[dict[str, Any]]:
    for number, (at, line) in enumerate(_lines(path)):
        entry = _parse(line)
        if not _is_record(entry):
            entry = {"value": line}
        try:
            yield _record(entry, source, number)
        except (ValueError, TypeError, KeyError, OverflowError, Base64Error) as error:
            raise PipelineError(f"{path}:{at}: no record: {error}") from None


def _record(entry: Mapping[str, Any], source: Source, number: int) -> dict[str, Any]:
    partition, offset = field_integer(entry, "partition"), field_integer(entry, "offset")
    timestamp_ms = field_integer(entry, "timestamp")
    for name, given, most in (("partition", partition, _INT_MAX), ("offset", offset, _LONG_MAX)):
        if given is not None and not 0 <= given <= most:
            raise ValueError(f"{name} {given} is none from 0 to {most}")
    return {
        "key": field_bytes(entry, "key"),
        "value": field_bytes(entry, "value"),
        "topic": entry.get("topic") or (source.topics[0] if source.topics else source.name),
        "partition": 0 if partition is None else partition,
        "offset": number if offset is None else offset,
        "timestamp": _EPOCH
        + timedelta(milliseconds=number if timestamp_ms is None else timestamp_ms),
        "timestampType": 0,
        "headers": field_headers(entry),
    }


def _canonical(value: Any) -> str:
    """A line that is the same for the same content: keys in order, fields that are null left out,
    a whole number written as one."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
