"""Mutated payloads: no form crashes or reads outside, and both give the same answer.

The payload given to a kernel ends where a page that may not be read begins, so that a read beyond
its end ends the process instead of passing unnoticed.
"""

from __future__ import annotations

import random
from array import array
from types import ModuleType

from tests.unit.kernels.columns import int32, int64
from tests.unit.kernels.forms import FORMS
from tests.unit.kernels.guarded import Guarded
from tests.unit.kernels.payloads import INT64_MAX, INT64_MIN, payload, random_rows, varint

CASES = 20_000
FAULTS = 10
INTERESTING = (0, 1, 2, 63, 64, 127, 128, 254, 255)
EXTREME_VARINTS = [
    varint(value) for value in (-1, -2, 1 << 20, (1 << 31) - 1, -(1 << 31), INT64_MAX, INT64_MIN)
] + [b"\xff" * 5, b"\xff" * 10, b"\x80" * 12]


def mutate(chance: random.Random, data: bytes) -> bytes:
    mutated = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(mutated) + 1)
        match chance.randrange(6):
            case 0 if at < len(mutated):
                mutated[at] = chance.choice(INTERESTING)
            case 1 if at < len(mutated):
                mutated[at] ^= 1 << chance.randrange(8)
            case 2:
                del mutated[at:]
            case 3:
                mutated[at:at] = chance.choice(EXTREME_VARINTS)
            case 4:
                mutated[at : at + chance.randrange(6)] = chance.choice(EXTREME_VARINTS)
            case _:
                copied = mutated[at : at + chance.randrange(30)]
                there = chance.randrange(len(mutated) + 1)
                mutated[there : there + chance.randrange(4)] = copied
    return bytes(mutated)


def outcome(kernel: ModuleType, data: memoryview, count: int, base: int) -> tuple[object, ...]:
    """Everything that a form says of a payload."""
    low, high = INT64_MIN, INT64_MAX
    if base % 2 == 0:
        low, high = max(low, base - 1000), min(high, base + 1000)
    valid = kernel.validate(data, count, base, low, high, base % 3 == 0)
    rows, timestamps = int32(7 * count), int64(count)
    indexed = kernel.index(data, count, base, rows, timestamps)
    if indexed[0]:
        return (valid, indexed, rows, timestamps)
    return (valid, indexed, rows, timestamps, *gathered(kernel, data, rows, count))


def gathered(
    kernel: ModuleType, data: memoryview, rows: array[int], count: int
) -> tuple[object, ...]:
    keys, values, headers, header_keys, header_values = kernel.measure(data, rows, count)
    key = (int32(count + 1), bytearray(keys), bytearray(count // 8 + 1))
    value = (int32(count + 1), bytearray(values), bytearray(count // 8 + 1))
    lists = int32(count + 1)
    header_key = (int32(headers + 1), bytearray(header_keys))
    header_value = (int32(headers + 1), bytearray(header_values), bytearray(headers // 8 + 1))
    nulls = (
        kernel.gather_bytes(data, rows, count, 2, 0, *key),
        kernel.gather_bytes(data, rows, count, 4, 0, *value),
        kernel.gather_headers(data, rows, count, 0, lists, *header_key, *header_value),
    )
    return (nulls, key, value, lists, header_key, header_value)


def test_mutated_payloads_get_the_same_answer_from_every_form(guarded: Guarded) -> None:
    chance = random.Random(20_240_229)
    answers: dict[int, int] = {}
    for case in range(CASES):
        rows = random_rows(chance, chance.randrange(1, 7), 140)
        data = mutate(chance, payload(rows))
        count = len(rows) if chance.random() < 0.9 else chance.randrange(12)
        base = chance.choice((0, 1, INT64_MAX, INT64_MIN, chance.randrange(1 << 40)))
        view = guarded.put(data)
        outcomes = [outcome(kernel, view, count, base) for kernel in FORMS.values()]
        assert all(each == outcomes[0] for each in outcomes), (case, data.hex(), count, base)
        fault = outcomes[0][0][0]  # type: ignore[index]
        answers[fault] = answers.get(fault, 0) + 1
    assert sum(answers.values()) == CASES
    assert sorted(answers) == list(range(FAULTS + 1)), "every fault is met, and soundness too"


def test_rows_that_no_index_wrote_never_reach_outside_the_payload(guarded: Guarded) -> None:
    chance = random.Random(7)
    refused = 0
    for _ in range(2_000):
        count = chance.randrange(1, 5)
        data = guarded.put(payload(random_rows(chance, count, 60)))
        limits = (-2, -1, 0, 1, len(data) - 1, len(data), (1 << 31) - 1, -(1 << 31))
        rows = array(
            "i",
            [chance.choice((*limits, chance.randrange(len(data)))) for _ in range(7 * count)],
        )
        outcomes: list[object] = []
        for kernel in FORMS.values():
            try:
                outcomes.append(gathered_into_little(kernel, data, rows, count))
            except ValueError as error:
                outcomes.append(str(error))
        assert all(each == outcomes[0] for each in outcomes)
        refused += isinstance(outcomes[0], str)
    assert 500 < refused < 2_000


def gathered_into_little(
    kernel: ModuleType, data: memoryview, rows: array[int], count: int
) -> object:
    value = (int32(count + 1), bytearray(40), bytearray(1))
    nulls = kernel.gather_bytes(data, rows, count, 4, 0, *value)
    lists, keys, values = int32(count + 1), int32(4), int32(4)
    header_data = (bytearray(30), bytearray(30), bytearray(1))
    nulls += kernel.gather_headers(
        data, rows, count, 0, lists, keys, header_data[0], values, *header_data[1:]
    )
    return (nulls, value, lists, keys, values, header_data)
