"""The format of the audit log: JSON lines, each with the hash of the line before it.

A line is one JSON object. Its last two members are `prev`, the hash of the line before, and `hash`,
the SHA-256 of this line's own bytes up to `,"hash"`. `seq` counts the lines from 1, over all files.
A file is named for the `seq` of its first line, and is only ever appended to. Beside the files
lies the head: the newest `seq` and `hash`, written after each batch of lines.

What `verify` notices: a changed, removed, added or moved line, a missing file, and an end that was
cut off behind the head. What it cannot notice by itself: somebody who may write to the directory,
and who writes the chain again from some line to the end, head included. For that, keep a `hash`
elsewhere from time to time and give it to `verify`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

DIRECTORY: Final = "audit"
HEAD_FILE: Final = "audit.head"
FIRST_PREVIOUS: Final = "0" * 64
# The action of the line that says which lines were removed because the log got too large.
FILES_REMOVED: Final = "AuditFilesRemoved"

_NAME = re.compile(r"audit-(\d{20})\.jsonl")
_TAIL = re.compile(rb',"hash":"([0-9a-f]{64})"}')
_TAIL_BYTES: Final = len(b',"hash":"') + 64 + len(b'"}')
_HEAD = re.compile(rb"(\d{1,20}) ([0-9a-f]{64})\n")


class ChainEnd(NamedTuple):
    """The newest line: its number and its hash."""

    seq: int
    hash: str


EMPTY: Final = ChainEnd(0, FIRST_PREVIOUS)


class Problem(NamedTuple):
    """What is wrong, and in which line of which file; line 0 is the file as a whole."""

    file: str
    line: int
    what: str


@dataclass(slots=True)
class Verdict:
    """What `verify` found."""

    entries: int = 0
    first_seq: int = 0
    end: ChainEnd = EMPTY
    problems: list[Problem] = field(default_factory=list)
    # The lines before this one were removed because the log got too large.
    removed_before: int = 1


def file_name(first_seq: int) -> str:
    return f"audit-{first_seq:020d}.jsonl"


def first_seq_of(name: str) -> int | None:
    """The number of the first line in a file of that name; None for another file."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def audit_files(names: Iterable[str]) -> list[str]:
    """Those of the names that are files of the log, oldest first."""
    return sorted(name for name in names if first_seq_of(name) is not None)


def encode_entry(document: Mapping[str, object], previous: ChainEnd) -> tuple[bytes, ChainEnd]:
    """The line of an entry, with its newline, and the end of the chain behind it."""
    seq = previous.seq + 1
    numbered = {"seq": seq, **document, "prev": previous.hash}
    body = json.dumps(numbered, separators=(",", ":"), default=str).encode()[:-1]
    digest = hashlib.sha256(body).hexdigest()
    return body + b',"hash":"' + digest.encode() + b'"}\n', ChainEnd(seq, digest)


def decode_entry(line: bytes) -> dict[str, object]:
    """The entry of a line without its newline; ValueError unless its hash is that of its bytes."""
    tail = _TAIL.fullmatch(line[-_TAIL_BYTES:])
    if tail is None:
        raise ValueError("not a line of an audit log")
    if hashlib.sha256(line[:-_TAIL_BYTES]).hexdigest().encode() != tail[1]:
        raise ValueError("the line was changed: its hash does not match")
    entry = json.loads(line)
    if not isinstance(entry, dict) or not isinstance(entry.get("seq"), int):
        raise ValueError("not a line of an audit log")
    return entry


def end_of(entry: Mapping[str, object]) -> ChainEnd:
    """The end of a chain whose newest line has this entry."""
    seq = entry["seq"]
    assert isinstance(seq, int)
    return ChainEnd(seq, str(entry["hash"]))


def encode_head(end: ChainEnd) -> bytes:
    return f"{end.seq} {end.hash}\n".encode()


def decode_head(data: bytes) -> ChainEnd | None:
    """What a head says; None where it is damaged."""
    found = _HEAD.match(data)
    return ChainEnd(int(found[1]), found[2].decode()) if found else None


def verify(
    files: Sequence[tuple[str, Iterable[bytes]]], head: ChainEnd | None, expected: str | None = None
) -> Verdict:
    """Check the whole log: its files, oldest first, each with its lines, and the head.

    `expected` is a hash from elsewhere that must be one of the log's.
    """
    walk = _Walk()
    for name, lines in files:
        walk.file(name, lines)
    verdict = walk.verdict
    _check_ends(verdict, files[0][0] if files else "", head)
    if expected is not None and expected not in walk.hashes:
        verdict.problems.append(
            Problem("", 0, f"no line has the hash {expected}: the log was written again")
        )
    return verdict


class _Walk:
    """The chain so far, while its lines are looked at in turn."""

    def __init__(self) -> None:
        self.verdict = Verdict()
        self.hashes: set[str] = set()
        self._end: ChainEnd | None = None

    def file(self, name: str, lines: Iterable[bytes]) -> None:
        first = first_seq_of(name)
        for number, line in enumerate(lines, 1):
            what = self._line(line, first if number == 1 else None)
            if what is not None:
                self.verdict.problems.append(Problem(name, number, what))

    def _line(self, line: bytes, named: int | None) -> str | None:
        """Take the next line; what is wrong with it, or None."""
        before = self._end
        if not line.endswith(b"\n"):
            return "the line has no end: it was cut off"
        try:
            entry = decode_entry(line[:-1])
        except ValueError as error:
            if before is not None:
                # The next line says what the hash of this one was.
                self._end = ChainEnd(before.seq + 1, "")
            return str(error)
        self._end = end = end_of(entry)
        verdict = self.verdict
        verdict.entries += 1
        verdict.end = end
        verdict.first_seq = verdict.first_seq or end.seq
        self.hashes.add(end.hash)
        removed_before = entry.get("removed_before")
        if entry.get("action") == FILES_REMOVED and isinstance(removed_before, int):
            verdict.removed_before = max(verdict.removed_before, removed_before)
        if named is not None and named != end.seq:
            return f"the file is named for line {named} and begins with line {end.seq}"
        return _link_fault(before, end.seq, entry)


def _link_fault(before: ChainEnd | None, seq: int, entry: Mapping[str, object]) -> str | None:
    if before is None:
        if seq == 1 and entry.get("prev") != FIRST_PREVIOUS:
            return "the first line names a line before it"
        return None
    if seq > before.seq + 1:
        return f"lines {before.seq + 1} to {seq - 1} are missing before this one"
    if seq <= before.seq:
        return f"line {seq} comes after line {before.seq}"
    if before.hash and entry.get("prev") != before.hash:
        return "the line before this one was changed or replaced"
    return None


def _check_ends(verdict: Verdict, first_file: str, head: ChainEnd | None) -> None:
    problems = verdict.problems
    if verdict.first_seq > 1 and verdict.removed_before < verdict.first_seq:
        problems.insert(
            0, Problem(first_file, 0, f"lines 1 to {verdict.first_seq - 1} are missing")
        )
    if head is None:
        if verdict.entries:
            problems.append(
                Problem(HEAD_FILE, 0, "there is no head: a cut at the end would not be noticed")
            )
        return
    if head.seq > verdict.end.seq:
        what = f"lines {verdict.end.seq + 1} to {head.seq} are missing at the end"
        problems.append(Problem(HEAD_FILE, 0, what))
    elif head.seq == verdict.end.seq and head.hash != verdict.end.hash:
        problems.append(Problem(HEAD_FILE, 0, f"the head names another line {head.seq}"))


def lines_of(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file that is read in blocks, each with its newline; the last may have none."""
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest
