"""Generates the function that encodes one message version.

The function takes a message and returns a list of parts and their bytes in all. It collects small
pieces in `out` and joins them at the end, or before every non-empty records field, which becomes a
part of its own. Neighbouring fixed-width fields are packed by one call together with the length or
count that follows them; compact lengths below 128 are one byte and take that way too::

    s6 = o5.host.encode()
    n7 = len(s6) + 1
    w(pack8(o5.node_id, n7) if n7 < 128 else pack9(o5.node_id) + uvarint(n7))
    w(s6)

Fields that the version lacks are compared with their defaults first, so that no value is lost.

In pieces, the function is a generator that pauses after every element of an array and yields the
bytes so far. It joins what it has collected every few kilobytes, because thousands of small pieces
take ten times the memory of their bytes.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.protocol import primitives
from tidelog.protocol.primitives import FIXED_WIDTH, SMALL_ARRAY_MAX
from tidelog.protocol.schema import Encoder, FieldSpec, Schema, schema_of
from tidelog.protocol.schema_source import SourceWriter

# How many small pieces an encoder that works in pieces collects before it joins them.
_PIECES_TO_JOIN: Final = 2048
# Members of a group may have a mebibyte of their own bytes each.
_BYTES_TO_COPY: Final = 4096


def compile_encoder(schema: Schema, version: int, in_pieces: bool = False) -> Encoder:
    """Generate and compile the encoder of one message version."""
    writer = _EncoderWriter(version, version >= schema.flexible, dict(_NAMES), in_pieces)
    writer.function(schema)
    return writer.compile("encode(m)", f"encode {schema.name} version {version}")


_NAMES: Final[dict[str, Any]] = {
    "join": b"".join,
    "one_byte": primitives.ONE_BYTE,
    "uvarint": primitives.encode_uvarint,
    "part_size": primitives.part_size,
    "pack_array": primitives.pack_array,
    "refuse_field": primitives.refuse_field,
    "refuse_null": primitives.refuse_null,
}


class _EncoderWriter(SourceWriter):
    """Writes the source of an encoder; pieces go to the list whose `append` is named `write`."""

    write = "w"

    def function(self, schema: Schema) -> None:
        self.line("parts = []")
        self.line("size = 0")
        self.line("out = []")
        self.line("w = out.append")
        self.structure(schema, "m")
        self.flush()
        self.cut("if out:")
        self.line("return parts, size")
        if self.in_pieces:
            # An encoder without arrays never pauses, and is a generator all the same.
            self.line("yield size")

    def pause(self) -> None:
        """Let the caller do something else; called behind every element of an array."""
        if self.write == "w":
            self.cut(f"if len(out) > {_PIECES_TO_JOIN}:")
            self.line("    out.clear()")
        self.line("yield size")

    def cut(self, condition: str) -> None:
        """Make a part of what was collected."""
        self.line(condition)
        self.line("    joined = join(out)")
        self.line("    parts.append(joined)")
        self.line("    size += len(joined)")

    def packed(self, run: list[tuple[str, str]]) -> str:
        """The expression that packs a run; "x" is a zero byte without a value."""
        codes = "".join(code for code, _ in run)
        if set(codes) <= {"x"}:
            return repr(bytes(len(codes)))
        values = ", ".join(value for code, value in run if code != "x")
        return f"{self.constant('pack', primitives.packer(codes))}({values})"

    def flush(self) -> None:
        """Write the values collected so far."""
        if self.run:
            self.line(f"{self.write}({self.packed(self.run)})")
            self.run.clear()

    def flush_prefix(self, count: str, code: str) -> None:
        """Write the values collected so far and, behind them, a length or count.

        In a compact version `count` already is the number plus one.
        """
        if not self.flexible:
            self.run.append((code, count))
            self.flush()
            return
        short, long = f"one_byte[{count}]", f"uvarint({count})"
        if self.run:
            short = self.packed([*self.run, ("B", count)])
            long = f"{self.packed(self.run)} + {long}"
        self.line(f"{self.write}({short} if {count} < 128 else {long})")
        self.run.clear()

    def structure(self, schema: Schema, source: str) -> None:
        """Encode the structure in the variable `source`; the caller flushes the last run."""
        for spec in schema.fields:
            if not spec.carried_by(self.version) and not spec.ignorable:
                self.line(f"if {self.differs(spec, f'{source}.{spec.name}')}:")
                self.line(f"    refuse_field('{schema.name}.{spec.name}', {self.version})")
        for spec in schema.fields:
            if spec.carried_by(self.version) and spec.tag is None:
                self.field(spec, f"{source}.{spec.name}", schema.name)
        if self.flexible:
            self.tags(schema, source)

    def differs(self, spec: FieldSpec, value: str) -> str:
        """The condition that a value is not its field's default."""
        if spec.wire_type == "struct" and not spec.is_array and spec.nullable is None:
            made = self.constant("default", schema_of(_structure(spec)).cls())
            return f"{value} is not None and {value} != {made}"
        if spec.default is None:
            return f"{value} is not None"
        if isinstance(spec.default, list):
            return f"{value} is None or len({value})"
        if spec.wire_type == "uuid":
            return f"{value} != {self.constant('uuid', spec.default)}"
        return f"{value} != {spec.default!r}"

    def field(self, spec: FieldSpec, value: str, owner: str) -> None:
        label = f"{owner}.{spec.name}"
        if spec.is_array:
            self.array(spec, value, label)
        elif spec.structure is not None:
            self.nested(spec, value, label)
        elif spec.wire_type in FIXED_WIDTH:
            self.fixed(spec, value)
        elif spec.wire_type == "records":
            self.records(spec, value, label)
        else:
            self.sliced(spec, value, label)

    def fixed(self, spec: FieldSpec, value: str) -> None:
        code = FIXED_WIDTH[spec.wire_type][0]
        self.run.append((code, f"{value}.bytes" if spec.wire_type == "uuid" else value))

    def nested(self, spec: FieldSpec, value: str, label: str) -> None:
        source = self.name("o")
        self.line(f"{source} = {value}")
        if spec.tag is not None or not spec.nullable_in(self.version):
            self.refuse_null(spec, source, label)
            self.structure(schema_of(_structure(spec)), source)
            return
        # A nullable structure is preceded by one byte: 1, or -1 for null.
        self.run.append(("b", f"-1 if {source} is None else 1"))
        self.flush()
        self.line(f"if {source} is not None:")
        self.indent += 1
        self.structure(schema_of(_structure(spec)), source)
        self.flush()
        self.indent -= 1

    def refuse_null(self, spec: FieldSpec, value: str, label: str) -> None:
        """Say plainly that a field which other versions allow to be null cannot be so here."""
        if spec.nullable is not None and not spec.nullable_in(self.version):
            self.line(f"if {value} is None:")
            self.line(f"    refuse_null({label!r}, {self.version})")

    def counted(self, spec: FieldSpec, value: str, size: str) -> str:
        """Compute the length or count to write for a value; returns its variable."""
        count = self.name("n")
        present = f"{size} + 1" if self.flexible else size
        if spec.nullable_in(self.version):
            absent = "0" if self.flexible else "-1"
            self.line(f"{count} = {absent} if {value} is None else {present}")
        else:
            self.line(f"{count} = {present}")
        return count

    def sliced(self, spec: FieldSpec, value: str, label: str) -> None:
        """Encode a string or bytes."""
        content = self.name("s")
        nullable = spec.nullable_in(self.version)
        self.line(f"{content} = {value}")
        self.refuse_null(spec, content, label)
        if spec.wire_type == "string":
            if nullable:
                self.line(f"if {content} is not None:")
            self.line(f"{'    ' if nullable else ''}{content} = {content}.encode()")
        count = self.counted(spec, content, f"len({content})")
        self.flush_prefix(count, "h" if spec.wire_type == "string" else "i")
        if nullable:
            self.line(f"if {content}:")
            self.indent += 1
        if self.in_pieces and spec.wire_type == "bytes" and self.write == "w":
            self.shared(content)
        else:
            self.line(f"{self.write}({content})")
        if nullable:
            self.indent -= 1

    def shared(self, content: str) -> None:
        """Write bytes; large ones become a part of their own and are not copied."""
        self.cut(f"if len({content}) > {_BYTES_TO_COPY}:")
        self.line(f"    parts.append({content})")
        self.line(f"    size += len({content})")
        self.line("    out.clear()")
        self.line("else:")
        self.line(f"    w({content})")

    def records(self, spec: FieldSpec, value: str, label: str) -> None:
        assert self.write == "w", "records cannot lie in a tagged field"
        content = self.name("r")
        self.line(f"{content} = {value}")
        self.refuse_null(spec, content, label)
        count = self.counted(spec, content, f"part_size({content})")
        self.flush_prefix(count, "i")
        self.cut(f"if {count} > {1 if self.flexible else 0}:")
        self.line(f"    parts.append({content})")
        self.line(f"    size += {count}{' - 1' if self.flexible else ''}")
        self.line("    out.clear()")

    def array(self, spec: FieldSpec, value: str, label: str) -> None:
        elements = self.name("l")
        self.line(f"{elements} = {value}")
        self.refuse_null(spec, elements, label)
        nullable = spec.nullable_in(self.version)
        count = self.counted(spec, elements, f"len({elements})")
        if spec.wire_type in FIXED_WIDTH and spec.wire_type != "uuid" and not nullable:
            self.fixed_array(spec, elements, count)
            return
        self.flush_prefix(count, "i")
        if nullable:
            self.line(f"if {elements}:")
            self.indent += 1
        if spec.wire_type in FIXED_WIDTH and spec.wire_type != "uuid":
            code = FIXED_WIDTH[spec.wire_type][0]
            self.line(f"{self.write}(pack_array({code!r}, {elements}))")
        else:
            self.loop(spec, elements, label)
        if nullable:
            self.indent -= 1

    def fixed_array(self, spec: FieldSpec, elements: str, count: str) -> None:
        """Pack a short array together with the run and the count in front of it."""
        code = FIXED_WIDTH[spec.wire_type][0]
        codes = "".join(each for each, _ in self.run) + ("B" if self.flexible else "i")
        values = [each for run_code, each in self.run if run_code != "x"]
        small = self.constant("small", primitives.small_packers(codes, code))
        arguments = ", ".join([*values, count, f"*{elements}"])
        index = f"{count} - 1" if self.flexible else count
        self.line(f"if {count} <= {SMALL_ARRAY_MAX + (1 if self.flexible else 0)}:")
        self.line(f"    {self.write}({small}[{index}]({arguments}))")
        self.line("else:")
        self.indent += 1
        self.flush_prefix(count, "i")
        self.line(f"{self.write}(pack_array({code!r}, {elements}))")
        self.indent -= 1

    def loop(self, spec: FieldSpec, elements: str, label: str) -> None:
        element = self.name("o")
        self.line(f"for {element} in {elements}:")
        self.indent += 1
        if spec.structure is not None:
            self.structure(schema_of(spec.structure), element)
        else:
            plain = FieldSpec("", spec.wire_type, (self.version, self.version), None)
            self.field(plain, element, label)
        self.flush()
        if self.in_pieces:
            self.pause()
        self.indent -= 1

    def tags(self, schema: Schema, source: str) -> None:
        """Write the tagged fields that differ from their defaults, in the order of their tags."""
        carried = [s for s in schema.fields if s.tag is not None and s.carried_by(self.version)]
        if not carried:
            self.run.append(("x", ""))
            return
        count, content = self.name("t"), self.name("c")
        self.line(f"{count} = 0")
        waiting, write = self.run, self.write
        for spec in sorted(carried, key=lambda each: each.tag or 0):
            value = self.name("v")
            self.line(f"{value} = {source}.{spec.name}")
            self.line(f"if {self.differs(spec, value)}:")
            self.indent += 1
            pieces, self.write, self.run = self.name("p"), self.name("w"), []
            self.line(f"{pieces} = []")
            self.line(f"{self.write} = {pieces}.append")
            self.field(spec, value, schema.name)
            self.flush()
            self.line(f"{pieces} = join({pieces})")
            self.line(f"if not {count}:")
            self.line(f"    {content} = []")
            self.line(f"{count} += 1")
            self.line(f"{content} += uvarint({spec.tag}), uvarint(len({pieces})), {pieces}")
            self.indent -= 1
        self.run, self.write = waiting, write
        self.flush_prefix(count, "B")
        self.line(f"if {count}:")
        self.line(f"    {self.write}(join({content}))")


def _structure(spec: FieldSpec) -> type[Any]:
    assert spec.structure is not None
    return spec.structure
