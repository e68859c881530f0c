"""The chain of the audit log: what was done to it is found, with its line."""

from __future__ import annotations

import random

import pytest

from tidelog.security.audit_chain import (
    EMPTY,
    FILES_REMOVED,
    ChainEnd,
    Verdict,
    decode_entry,
    decode_head,
    encode_entry,
    encode_head,
    file_name,
    lines_of,
    verify,
)

FILES = ((1, 4), (5, 7), (8, 9))


def written(extra: dict[int, dict[str, object]] | None = None) -> tuple[dict[str, bytes], ChainEnd]:
    """A log of nine lines in three files, and its end."""
    files, end = {}, EMPTY
    for first, last in FILES:
        lines = []
        for seq in range(first, last + 1):
            document = {"action": f"a{seq}", "resource": ["Topic:\x1b[31m\r\nnew"]}
            line, end = encode_entry({**document, **(extra or {}).get(seq, {})}, end)
            lines.append(line)
        files[file_name(first)] = b"".join(lines)
    return files, end


def judged(files: dict[str, bytes], head: ChainEnd | None, expected: str | None = None) -> Verdict:
    return verify([(name, lines_of([files[name]])) for name in sorted(files)], head, expected)


def test_a_log_that_nobody_touched_has_no_problem() -> None:
    files, end = written()
    verdict = judged(files, end, end.hash)
    assert verdict.problems == []
    assert (verdict.entries, verdict.end) == (9, end)


def test_control_characters_of_clients_are_escaped() -> None:
    files, _ = written()
    text = b"".join(files.values())
    assert b"\x1b" not in text and b"\r" not in text
    assert text.count(b"\n") == 9
    assert decode_entry(text.splitlines()[0])["resource"] == ["Topic:\x1b[31m\r\nnew"]


def test_any_changed_byte_is_reported_with_its_line() -> None:
    files, end = written()
    chance = random.Random(7)
    tried = 0
    for name, data in files.items():
        for position in range(0, len(data), 7):
            changed = bytearray(data)
            changed[position] ^= 1 << chance.randrange(8)
            verdict = judged({**files, name: bytes(changed)}, end)
            line = data[:position].count(b"\n") + 1
            assert any(
                (each.file, each.line) in ((name, line), (name, line + 1))
                for each in verdict.problems
            ), (name, position)
            tried += 1
    assert tried > 200


@pytest.mark.parametrize("gone", range(9))
def test_a_removed_line_is_reported(gone: int) -> None:
    files, end = written()
    name = next(file_name(first) for first, last in FILES if first <= gone + 1 <= last)
    lines = files[name].splitlines(keepends=True)
    del lines[gone + 1 - int(name[6:26])]
    assert judged({**files, name: b"".join(lines)}, end).problems


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_missing_file_is_reported(which: int) -> None:
    files, end = written()
    first, last = FILES[which]
    del files[file_name(first)]
    (problem,) = judged(files, end).problems
    assert f"lines {first} to {last} are missing" in problem.what


def test_all_files_missing_is_reported_by_the_head() -> None:
    _, end = written()
    (problem,) = judged({}, end).problems
    assert problem.what == "lines 1 to 9 are missing at the end"


def test_an_end_that_was_cut_off_is_reported_by_the_head() -> None:
    files, end = written()
    last = file_name(8)
    files[last] = files[last].splitlines(keepends=True)[0]
    (problem,) = judged(files, end).problems
    assert problem.what == "lines 9 to 9 are missing at the end"
    assert judged(files, None).problems, "without its head a log cannot be known to be whole"


def test_lines_in_another_order_are_reported() -> None:
    files, end = written()
    first, second, *rest = files[file_name(1)].splitlines(keepends=True)
    files[file_name(1)] = b"".join((second, first, *rest))
    assert judged(files, end).problems


def test_a_chain_that_was_written_again_is_found_by_a_noted_hash_alone() -> None:
    _, end = written()
    forged, forged_end = written({3: {"principal": "User:mallory"}})
    assert judged(forged, forged_end).problems == []
    (problem,) = judged(forged, forged_end, end.hash).problems
    assert "written again" in problem.what


def test_files_whose_removal_the_log_announced_are_not_missing() -> None:
    files, end = written({8: {"action": FILES_REMOVED, "removed_before": 5}})
    del files[file_name(1)]
    verdict = judged(files, end)
    assert verdict.problems == [] and verdict.removed_before == 5
    del files[file_name(5)]
    assert judged(files, end).problems


def test_a_head_that_is_damaged_is_none() -> None:
    _, end = written()
    assert decode_head(encode_head(end)) == end
    for bad in (b"", b"9", b"9 abc\n", encode_head(end)[:-1], b"\xff" * 80):
        assert decode_head(bad) is None
