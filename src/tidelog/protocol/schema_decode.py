"""Generates the function that decodes one message version.

The function takes a buffer, a position and how many elements the message may have in all. It
returns the message and the position behind it. It holds the loops of all nested arrays itself and
calls nothing per structure. For a Fetch request the partitions of a topic come out as::

    for _ in range(n3):
        o3 = new(FetchPartition)
        o3.partition, o3.current_leader_epoch, ..., n4 = unpack_2(buffer, p)
        p += 33
        if n4:
            p, left = skip_tags(buffer, p, n4, left)
        l3.append(o3)

Safety rests on four rules. A position never moves back, since every length is checked to be at
least zero. Strings and records are cut out by slices, which end at the buffer's end when they are
too long; the position then lies behind the buffer, every later read fails, and one comparison at
the very end refuses a message that ended there. A count is held against the bytes left and the
elements left before its loop. Reads behind the end raise IndexError or struct.error, which
`schema.decode` translates.

In pieces, the function is a generator that pauses after every element of an array.
"""

from __future__ import annotations

from struct import calcsize, unpack_from
from typing import Any, Final

from tidelog.errors import ProtocolError
from tidelog.protocol import primitives
from tidelog.protocol.primitives import FIXED_WIDTH, SMALL_ARRAY_MAX, STRING_BYTES_MAX
from tidelog.protocol.schema import Decoder, FieldSpec, Schema, schema_of
from tidelog.protocol.schema_source import SourceWriter


def compile_decoder(schema: Schema, version: int, in_pieces: bool = False) -> Decoder:
    """Generate and compile the decoder of one message version."""
    writer = _DecoderWriter(version, version >= schema.flexible, dict(_NAMES), in_pieces)
    writer.function(schema)
    return writer.compile("decode(buffer, p, left)", f"decode {schema.name} version {version}")


def smallest_size(spec: FieldSpec, version: int, flexible: bool) -> int:
    """The fewest bytes that a field can take in a message; a tagged field can be absent."""
    if spec.tag is not None or not spec.carried_by(version):
        return 0
    if spec.is_array:
        return 1 if flexible else 4
    return smallest_element(spec, version, flexible)


def smallest_element(spec: FieldSpec, version: int, flexible: bool) -> int:
    """The fewest bytes of one element of an array, or of a field that is none."""
    if spec.wire_type in FIXED_WIDTH:
        return FIXED_WIDTH[spec.wire_type][1]
    if spec.structure is None:
        return 1 if flexible else (2 if spec.wire_type == "string" else 4)
    if not spec.is_array and spec.nullable_in(version):
        return 1
    inner = schema_of(spec.structure).fields
    total = sum(smallest_size(each, version, flexible) for each in inner)
    return max(1, total + (1 if flexible else 0))


_NAMES: Final[dict[str, Any]] = {
    "new": object.__new__,
    "read_uvarint": primitives.read_uvarint,
    "skip_tags": primitives.skip_tags,
    "uuid_of": primitives.uuid_of,
    "unpack_from": unpack_from,
    "ProtocolError": ProtocolError,
    "refuse_count": primitives.refuse_count,
    "refuse_length": primitives.refuse_length,
    "refuse_tag_size": primitives.refuse_tag_size,
}


class _DecoderWriter(SourceWriter):
    """Writes the source of a decoder; `after_run` are lines that need what the run reads."""

    def __init__(
        self, version: int, flexible: bool, names: dict[str, Any], in_pieces: bool
    ) -> None:
        super().__init__(version, flexible, names, in_pieces)
        self.after_run: list[str] = []

    def function(self, schema: Schema) -> None:
        self.line("size = len(buffer)")
        self.line("view = memoryview(buffer)")
        target = self.structure(schema)
        self.flush()
        self.line("if p > size:")
        self.line(f"    raise ProtocolError('{schema.name} is cut off')")
        self.line(f"return {target}, p")
        if self.in_pieces:
            # A decoder without arrays never pauses, and is a generator all the same.
            self.line("yield p")
        if not any("view[" in line for line in self.lines):
            self.lines.remove("    view = memoryview(buffer)")

    def flush(self) -> None:
        """Read the fixed-width fields collected so far with one call."""
        if self.run:
            codes = "".join(code for code, _ in self.run)
            targets = ", ".join(target for _, target in self.run)
            if codes == "B":
                self.line(f"{targets} = buffer[p]")
            else:
                unpack = self.constant("unpack", primitives.unpacker(codes))
                self.line(f"{targets}{',' if len(self.run) == 1 else ''} = {unpack}(buffer, p)")
            self.line(f"p += {calcsize('>' + codes)}")
        for text in self.after_run:
            self.line(text)
        self.run.clear()
        self.after_run.clear()

    def structure(self, schema: Schema) -> str:
        """Decode a structure into a new object; returns the variable that holds it.

        The last fields may still be in the run: the caller flushes.
        """
        target = self.name("o")
        made = self.constant("cls", schema.cls)
        self.line(f"{target} = new({made})")
        tagged: list[FieldSpec] = []
        for spec in schema.fields:
            if spec.carried_by(self.version) and spec.tag is None:
                continue
            if spec.carried_by(self.version):
                tagged.append(spec)
            self.line(f"{target}.{spec.name} = {self.default(spec)}")
        for spec in schema.fields:
            if spec.carried_by(self.version) and spec.tag is None:
                self.field(spec, target, schema.name)
        if self.flexible:
            self.tags(tagged, target, schema.name)
        return target

    def default(self, spec: FieldSpec) -> str:
        if isinstance(spec.default, list):
            return "[]"
        if spec.wire_type == "struct":
            return "None" if spec.default is None else f"{self.constant('cls', spec.default)}()"
        if spec.wire_type == "uuid":
            return self.constant("uuid", spec.default)
        return repr(spec.default)

    def field(self, spec: FieldSpec, target: str, owner: str) -> None:
        label = f"{owner}.{spec.name}"
        store = f"{target}.{spec.name} = {{}}"
        if spec.is_array:
            self.array(spec, store, label)
        else:
            self.value(spec, store, label)

    def value(self, spec: FieldSpec, store: str, label: str) -> None:
        """Decode one value that is no array; `store` says where it goes, "{}" being the value."""
        if spec.wire_type == "uuid":
            raw = self.name("u")
            self.run.append(("16s", raw))
            self.after_run.append(store.format(f"uuid_of({raw})"))
        elif spec.wire_type in FIXED_WIDTH:
            code = FIXED_WIDTH[spec.wire_type][0]
            assert store.endswith(" = {}")
            self.run.append((code, store.removesuffix(" = {}")))
        elif spec.structure is not None:
            self.nested(spec, store)
        else:
            self.sliced(spec, store, label)

    def nested(self, spec: FieldSpec, store: str) -> None:
        assert spec.structure is not None
        schema = schema_of(spec.structure)
        if spec.tag is not None or not spec.nullable_in(self.version):
            target = self.structure(schema)
            self.flush()
            self.line(store.format(target))
            return
        # A nullable structure is preceded by one byte: 1, or -1 for null.
        flag = self.name("n")
        self.run.append(("b", flag))
        self.flush()
        self.line(f"if {flag} < 0:")
        self.line(f"    {store.format('None')}")
        self.line("else:")
        self.indent += 1
        target = self.structure(schema)
        self.flush()
        self.line(store.format(target))
        self.indent -= 1

    def open_prefixed(self, spec: FieldSpec, store: str, code: str) -> str:
        """Read a length or count and, where null is allowed, open the branch for a value.

        Whoever calls has to refuse a number below zero.
        """
        nullable = spec.nullable_in(self.version)
        count = self.name("n")
        self.run.append(("B" if self.flexible else code, count))
        self.flush()
        if self.flexible:
            # Compact: the number plus one, and zero for null.
            self.line(f"if {count} > 127:")
            self.line(f"    {count}, p = read_uvarint(buffer, p - 1)")
            self.line(f"{count} -= 1")
        if nullable:
            self.line(f"if {count} == -1:")
            self.line(f"    {store.format('None')}")
            self.line("else:")
            self.indent += 1
        return count

    def close_prefixed(self, spec: FieldSpec) -> None:
        if spec.nullable_in(self.version):
            self.indent -= 1

    def sliced(self, spec: FieldSpec, store: str, label: str) -> None:
        """Decode a string, bytes or records."""
        count = self.open_prefixed(spec, store, "h" if spec.wire_type == "string" else "i")
        # No version has longer strings; what is looked up or hashed by one stays cheap.
        is_long = f" or {count} > {STRING_BYTES_MAX}" if spec.wire_type == "string" else ""
        self.line(f"if {count} < 0{is_long}:")
        self.line(f"    refuse_length({label!r}, {count})")
        end = self.name("e")
        self.line(f"{end} = p + {count}")
        cut = {
            "string": f"str(buffer[p:{end}], 'utf-8')",
            "bytes": f"bytes(buffer[p:{end}])",
            "records": f"view[p:{end}]",
        }[spec.wire_type]
        self.line(store.format(cut))
        self.line(f"p = {end}")
        self.close_prefixed(spec)

    def array(self, spec: FieldSpec, store: str, label: str) -> None:
        count = self.open_prefixed(spec, store, "i")
        smallest = smallest_element(spec, self.version, self.flexible)
        self.line(f"left -= {count}")
        self.line(f"if {count} < 0 or left < 0 or {count} * {smallest} > size - p:")
        self.line(f"    refuse_count({label!r}, {count})")
        if spec.wire_type in FIXED_WIDTH and spec.wire_type != "uuid":
            code, width = FIXED_WIDTH[spec.wire_type]
            small = self.constant("small", primitives.small_unpackers(code))
            self.line(f"if {count} <= {SMALL_ARRAY_MAX}:")
            self.line("    " + store.format(f"list({small}[{count}](buffer, p))"))
            self.line("else:")
            self.line("    " + store.format(f"list(unpack_from(f'>{{{count}}}{code}', buffer, p))"))
            self.line(f"p += {count} * {width}")
        else:
            self.loop(spec, store, label, count)
        self.close_prefixed(spec)

    def loop(self, spec: FieldSpec, store: str, label: str, count: str) -> None:
        elements = self.name("l")
        self.line(f"{elements} = []")
        self.line(store.format(elements))
        self.line(f"for _ in range({count}):")
        self.indent += 1
        if spec.structure is not None:
            target = self.structure(schema_of(spec.structure))
            self.flush()
            self.line(f"{elements}.append({target})")
        else:
            element = FieldSpec("", spec.wire_type, (self.version, self.version), None)
            self.value(element, f"{elements}.append({{}})", label)
            self.flush()
        if self.in_pieces:
            self.line("yield p")
        self.indent -= 1

    def tags(self, tagged: list[FieldSpec], target: str, owner: str) -> None:
        """Read the tagged fields at the end of a structure."""
        count = self.name("t")
        self.run.append(("B", count))
        if not tagged:
            self.after_run.append(f"if {count}:")
            self.after_run.append(f"    p, left = skip_tags(buffer, p, {count}, left)")
            return
        self.flush()
        tag, length, end = self.name("tag"), self.name("n"), self.name("e")
        self.line(f"if {count}:")
        self.indent += 1
        self.line(f"if {count} > 127:")
        self.line(f"    {count}, p = read_uvarint(buffer, p - 1)")
        self.line(f"left -= {count}")
        self.line(f"if left < 0 or {count} * 2 > size - p:")
        self.line(f"    refuse_count('{owner} tags', {count})")
        self.line(f"for _ in range({count}):")
        self.indent += 1
        self.line(f"{tag}, p = read_uvarint(buffer, p)")
        self.line(f"{length}, p = read_uvarint(buffer, p)")
        self.line(f"{end} = p + {length}")
        keyword = "if"
        for spec in tagged:
            self.line(f"{keyword} {tag} == {spec.tag}:")
            self.indent += 1
            self.field(spec, target, owner)
            self.flush()
            self.indent -= 1
            keyword = "elif"
        self.line("else:")
        self.line(f"    p = {end}")
        self.line(f"if p != {end}:")
        self.line(f"    refuse_tag_size({owner!r}, {length}, {length} + p - {end})")
        self.indent -= 2
