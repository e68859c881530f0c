"""Our declarations against Kafka's own message definitions, field by field, version by version.

Kafka ships the definitions as JSON in its client jar, which Maven fetches once.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints
from uuid import UUID
from zipfile import ZipFile

import pytest

from tidelog.protocol.apis import APIS, Api
from tidelog.protocol.schema import FieldSpec, parse_versions, schema_of

KAFKA_VERSION = "4.3.0"
JAR = (
    Path.home()
    / f".m2/repository/org/apache/kafka/kafka-clients/{KAFKA_VERSION}"
    / f"kafka-clients-{KAFKA_VERSION}.jar"
)
MESSAGES = [(api, kind) for api in APIS if not api.private for kind in ("Request", "Response")]
NO_VERSIONS = (1, 0)
# Kafka has these names once in the request and once in the response.
RENAMED = {
    "ProposedTopic": "TopicData",
    "ProposedPartition": "PartitionData",
    "DecidedTopic": "TopicData",
    "DecidedPartition": "PartitionData",
    "QuotaComponent": "ComponentData",
    "QuotaEntityPart": "EntityData",
    "QuotaValue": "ValueData",
    "QuotaOperation": "OpData",
    "DescribedQuotas": "EntryData",
    "QuotaAlteration": "EntryData",
    "QuotaAlterationResult": "EntryData",
}
DEFAULTS: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "uuid": UUID(int=0)}


@pytest.fixture(scope="module")
def jar() -> Iterator[ZipFile]:
    if not JAR.exists():
        artifact = f"-Dartifact=org.apache.kafka:kafka-clients:{KAFKA_VERSION}"
        subprocess.run(["mvn", "-q", "dependency:get", artifact], check=True, timeout=240)
    with ZipFile(JAR) as opened:
        yield opened


def definition_of(jar: ZipFile, name: str) -> dict[str, Any]:
    text = jar.read(f"common/message/{name}.json").decode()
    made: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return made


def versions_of(text: str | None) -> range:
    first, last = NO_VERSIONS if text in (None, "none") else parse_versions(text)
    return range(first, last + 1)


@pytest.mark.java
@pytest.mark.parametrize(("api", "kind"), MESSAGES, ids=[a.name + kind for a, kind in MESSAGES])
def test_a_message_is_declared_as_kafka_defines_it(jar: ZipFile, api: Api, kind: str) -> None:
    definition = definition_of(jar, api.name + kind)
    cls = api.request if kind == "Request" else api.response
    schema = schema_of(cls)
    assert schema.name == definition["name"]
    assert api.key == definition["apiKey"]
    served = range(schema.versions[0], schema.versions[1] + 1)
    assert set(served) <= set(versions_of(definition["validVersions"]))
    for version in served:
        flexible = version in versions_of(definition["flexibleVersions"])
        assert (version >= schema.flexible) == flexible, version
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
    assert compare(cls, definition["fields"], served, common) == count(
        definition["fields"], served, common
    )


def compare(
    cls: type[Any], theirs: list[dict[str, Any]], served: range, common: dict[str, Any]
) -> int:
    """Compare a structure and all below it; returns how many fields were compared."""
    carried = [each for each in theirs if set(versions_of(each["versions"])) & set(served)]
    ours = schema_of(cls).fields
    assert [spec.name for spec in ours] == [snake_case(each["name"]) for each in carried]
    compared = 0
    for spec, definition in zip(ours, carried, strict=True):
        compare_field(cls, spec, definition, served)
        compared += 1
        if spec.structure is not None:
            inner = definition.get("fields") or common[spec.structure.__name__]
            compared += compare(spec.structure, inner, served, common)
    return compared


def compare_field(
    cls: type[Any], spec: FieldSpec, definition: dict[str, Any], served: range
) -> None:
    label = f"{cls.__name__}.{spec.name}"
    wire_type = spec.wire_type
    if spec.structure is not None:
        wire_type = RENAMED.get(spec.structure.__name__, spec.structure.__name__)
    assert ("[]" if spec.is_array else "") + wire_type == definition["type"], label
    tagged = versions_of(definition.get("taggedVersions"))
    for version in served:
        carried = version in versions_of(definition["versions"])
        assert spec.carried_by(version) == carried, (label, version)
        if not carried:
            continue
        nullable = version in versions_of(definition.get("nullableVersions"))
        assert spec.nullable_in(version) == nullable, (label, version)
        assert (spec.tag is not None) == (version in tagged), (label, version)
    assert spec.tag == definition.get("tag"), label
    assert spec.ignorable == (str(definition.get("ignorable", False)).lower() == "true"), label
    compare_default(spec, definition, label)
    optional = type(None) in get_args(get_type_hints(cls)[spec.name])
    bare = spec.structure is not None and not spec.is_array and spec.tag is not None
    assert optional == (spec.nullable is not None or bare), label


def compare_default(spec: FieldSpec, definition: dict[str, Any], label: str) -> None:
    expected = definition.get("default")
    if expected == "null" or spec.wire_type == "records":
        assert spec.default is None, label
    elif spec.is_array:
        assert expected is None and spec.default == [], label
    elif spec.wire_type == "struct":
        assert expected is None, label
    elif expected is None or expected == "":
        assert spec.default == DEFAULTS.get(spec.wire_type, 0), label
    elif spec.wire_type == "bool":
        assert spec.default == (str(expected).lower() == "true"), label
    elif spec.wire_type == "string":
        assert spec.default == expected, label
    else:
        assert spec.default == int(str(expected), 0), label


def count(theirs: list[dict[str, Any]], served: range, common: dict[str, Any]) -> int:
    total = 0
    for each in theirs:
        if set(versions_of(each["versions"])) & set(served):
            inner = each.get("fields") or common.get(each["type"].removeprefix("[]"), [])
            total += 1 + count(inner, served, common)
    return total


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
