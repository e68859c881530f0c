"""C11: a store file that is not as it was left is refused, by name, and never made anew."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.store.helpers import FILE, open_store, opened
from tidelog.errors import StorageError
from tidelog.store.port import Create, Stored


def make_store(directory: Path, nodes: int = 300) -> dict[str, Stored]:
    async def run() -> dict[str, Stored]:
        async with opened(directory) as store:
            await store.multi([Create("/a", b"")])
            await store.multi([Create(f"/a/{n}", f"value-{n}".encode()) for n in range(nodes)])
            return dict(await store.tree("/"))

    return asyncio.run(run())


async def read_everything(directory: Path) -> dict[str, Stored]:
    async with opened(directory) as store:
        return dict(await store.tree("/"))


def execute(sql: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(sql)
            connection.commit()

    return damage


def truncate(fraction: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        os.truncate(path, int(path.stat().st_size * fraction))

    return damage


def overwrite(content: bytes) -> Callable[[Path], None]:
    return lambda path: bool(path.write_bytes(content)) and None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate(0), "empty"),
        (truncate(0.5), "cannot be used"),
        (overwrite(b"not a database, but long enough to look like one" * 100), "cannot be used"),
        (execute("PRAGMA user_version=2"), "has store format 2, this version of Tidelog reads"),
        (execute("PRAGMA user_version=0"), "has store format 0"),
        (execute("PRAGMA application_id=1"), "not one that Tidelog wrote"),
        (execute("DROP TABLE node"), "cannot be used"),
        (execute("DELETE FROM state"), "0 state rows"),
        (execute("UPDATE state SET revision = 1"), "its state fails its checksum"),
        (execute("DELETE FROM node WHERE name = '7'"), "do not add up"),
        (execute("UPDATE node SET value = x'00' WHERE name = '7'"), "/a/7 fails its checksum"),
        (execute("UPDATE node SET version = 9 WHERE name = '7'"), "/a/7 fails its checksum"),
        (execute("UPDATE node SET name = 'x' WHERE name = '7'"), "/a/x fails its checksum"),
    ],
)
def test_c11_a_damaged_file_is_refused_by_name_and_left_alone(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    make_store(tmp_path)
    path = tmp_path / FILE
    damage(path)
    for _ in range(2):
        with pytest.raises(StorageError, match=message) as raised:
            asyncio.run(read_everything(tmp_path))
        assert str(path) in str(raised.value)


def test_c11_a_missing_file_is_made_only_for_a_new_broker(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"metadata\.db is missing"):
        asyncio.run(open_store(tmp_path, create=False))
    assert not (tmp_path / FILE).exists()
    make_store(tmp_path)
    (tmp_path / FILE).rename(tmp_path / "elsewhere")
    (tmp_path / f"{FILE}-wal").write_bytes(b"")
    with pytest.raises(StorageError, match=r"metadata\.db is missing"):
        asyncio.run(open_store(tmp_path))


def test_c11_a_crash_while_the_file_is_made_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.new").write_bytes(b"half")
    for leftover in ("-journal", "-wal", "-shm"):
        (tmp_path / f"{FILE}.new{leftover}").write_bytes(b"half")
    before = make_store(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [FILE, f"{FILE}.lock", f"{FILE}.revision"]
    assert asyncio.run(read_everything(tmp_path)) == before


def test_c11_a_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    """Whatever single bit of the file rots: the content is what it was, or the start is refused."""
    before = make_store(tmp_path)
    path = tmp_path / FILE
    sound, noted = path.read_bytes(), (tmp_path / f"{FILE}.revision").read_bytes()
    source = random.Random(11)
    refused = harmless = 0
    for _ in range(150):
        position = source.randrange(len(sound) * 8)
        rotten = bytearray(sound)
        rotten[position // 8] ^= 1 << (position % 8)
        path.write_bytes(rotten)
        (tmp_path / f"{FILE}.revision").write_bytes(noted)
        try:
            assert asyncio.run(read_everything(tmp_path)) == before
            harmless += 1
        except StorageError as error:
            assert str(path) in str(error)
            refused += 1
        for leftover in (f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal"):
            (tmp_path / leftover).unlink(missing_ok=True)
    print(f"flips={refused + harmless} refused={refused} harmless={harmless}")
    assert refused + harmless == 150
    assert refused >= 30


def test_c11_a_torn_log_keeps_whole_transactions_only(tmp_path: Path) -> None:
    """A crash may cut the write-ahead log anywhere: every transaction is whole or absent.

    The revision that was acknowledged is removed, as if none of the transactions had been.
    """

    async def write() -> tuple[bytes, bytes]:
        store = await open_store(tmp_path)
        await store.multi([Create("/a", b"")])
        for n in range(20):
            await store.multi([Create(f"/a/{n}-{side}", b"x" * 200) for side in ("l", "r")])
        files = (tmp_path / FILE).read_bytes(), (tmp_path / f"{FILE}-wal").read_bytes()
        await store.close()
        return files

    file, log = asyncio.run(write())
    source = random.Random(5)
    lengths = [0, len(log), *(source.randrange(len(log)) for _ in range(60))]
    seen = set()
    for length in lengths:
        (tmp_path / FILE).write_bytes(file)
        (tmp_path / f"{FILE}-wal").write_bytes(log[:length])
        (tmp_path / f"{FILE}.revision").unlink(missing_ok=True)
        tree = asyncio.run(read_everything(tmp_path))
        names = [path.rsplit("/", 1)[1] for path in tree if path != "/a"]
        done = len(names) // 2
        assert sorted(names) == sorted(f"{n}-{side}" for n in range(done) for side in ("l", "r"))
        seen.add(done)
    print(f"cuts={len(lengths)} distinct_outcomes={len(seen)}")
    assert len(lengths) == 62
    assert {0, 20} <= seen and len(seen) >= 10
