"""Changes that were acknowledged and are gone: the start is refused before anything is written."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.store.helpers import FILE, open_store, opened
from tidelog.errors import StorageError
from tidelog.store.port import Create

LOG, INDEX, REVISION = f"{FILE}-wal", f"{FILE}-shm", f"{FILE}.revision"


async def killed(directory: Path, *steps: str) -> None:
    """Leave what a SIGKILL would after each of the named nodes was made and acknowledged."""
    store = await open_store(directory)
    for name in steps:
        await store.multi([Create(f"/{name}", b"x" * 500)])
    files = {
        each.name: each.read_bytes() for each in directory.iterdir() if each.name.startswith(FILE)
    }
    await store.close()
    put_back(directory, files)


def put_back(directory: Path, files: dict[str, bytes]) -> None:
    for each in directory.iterdir():
        each.unlink()
    for name, content in files.items():
        (directory / name).write_bytes(content)


def files_of(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir()}


async def names(directory: Path) -> set[str]:
    async with opened(directory) as store:
        return {path.removeprefix("/") for path in await store.tree("/")}


def unlink(name: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).unlink()


def cut(name: str, fraction: float) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        os.truncate(directory / name, int((directory / name).stat().st_size * fraction))

    return damage


def spoil_log(directory: Path) -> None:
    (directory / LOG).write_bytes(b"\0" * (directory / LOG).stat().st_size)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (unlink(LOG), r"metadata\.db-wal is missing, .* revision 4 was acknowledged"),
        (cut(LOG, 0), r"metadata\.db or .*metadata\.db-wal was cut"),
        (cut(LOG, 0.9), r"metadata\.db or .*metadata\.db-wal was cut"),
        (spoil_log, r"metadata\.db or .*metadata\.db-wal was cut"),
        (cut(FILE, 0), r"metadata\.db cannot be used: the file is empty"),
        (unlink(FILE), r"metadata\.db is missing"),
    ],
    ids=["log missing", "log empty", "log cut", "log zeroed", "file empty", "file missing"],
)
def test_a_store_that_lost_acknowledged_changes_is_refused_and_left_as_it_is(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    asyncio.run(killed(tmp_path, "a", "b", "c"))
    damage(tmp_path)
    before = files_of(tmp_path)
    for _ in range(2):
        with pytest.raises(StorageError, match=message):
            asyncio.run(open_store(tmp_path))
        assert files_of(tmp_path) == {**before, f"{FILE}.lock": b""}


def test_an_older_copy_of_the_file_is_refused_until_the_operator_accepts_it(tmp_path: Path) -> None:
    asyncio.run(names(tmp_path))
    shutil.copy(tmp_path / FILE, tmp_path / "older")

    async def use() -> None:
        async with opened(tmp_path) as store:
            await store.multi([Create("/a", b"")])

    asyncio.run(use())
    (tmp_path / "older").replace(tmp_path / FILE)
    with pytest.raises(StorageError, match="is an older copy") as raised:
        asyncio.run(open_store(tmp_path))
    assert f"remove {tmp_path / REVISION}" in str(raised.value)
    (tmp_path / REVISION).unlink()
    assert asyncio.run(names(tmp_path)) == set()


@pytest.mark.parametrize("content", [None, b"", b"rotten", b"9" * 20 + b" 00000000\n"])
def test_a_revision_file_that_says_nothing_refuses_nothing(
    tmp_path: Path, content: bytes | None
) -> None:
    asyncio.run(killed(tmp_path, "a", "b"))
    if content is None:
        (tmp_path / REVISION).unlink()
    else:
        (tmp_path / REVISION).write_bytes(content)
    assert asyncio.run(names(tmp_path)) == {"a", "b"}
    assert len((tmp_path / REVISION).read_bytes()) == 30
    assert asyncio.run(names(tmp_path)) == {"a", "b"}


def test_what_may_be_missing_after_a_kill_or_a_clean_stop_is_not_missed(tmp_path: Path) -> None:
    asyncio.run(killed(tmp_path, "a"))
    (tmp_path / INDEX).unlink(missing_ok=True)
    assert asyncio.run(names(tmp_path)) == {"a"}
    assert not (tmp_path / LOG).exists()
    assert asyncio.run(names(tmp_path)) == {"a"}


def test_a_log_from_before_the_last_start_is_no_substitute(tmp_path: Path) -> None:
    asyncio.run(killed(tmp_path, "a"))
    log = (tmp_path / LOG).read_bytes()
    asyncio.run(names(tmp_path))
    asyncio.run(killed(tmp_path, "b"))
    (tmp_path / LOG).write_bytes(log)
    with pytest.raises(StorageError, match="acknowledged"):
        asyncio.run(open_store(tmp_path))


def test_a_full_disk_keeps_no_commit_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.host.disk import SystemDisk

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    async def run() -> None:
        async with opened(tmp_path) as store:
            monkeypatch.setattr(SystemDisk, "pwritev", full)
            await store.multi([Create("/a", b"")])
            monkeypatch.undo()

    asyncio.run(run())
    assert asyncio.run(names(tmp_path)) == {"a"}


_LIFE = """
import asyncio, os, sys
from pathlib import Path
from tests.unit.store.helpers import opened
from tidelog.store.port import Create

async def run():
    async with opened(Path(sys.argv[1])) as store:
        for number in range(10_000):
            await store.multi([Create(f"/{os.getpid()}-{number}", b"x" * 2000)])
            os.write(1, f"{os.getpid()}-{number}\\n".encode())

asyncio.run(run())
"""


def test_a_kill_at_any_moment_is_never_taken_for_a_loss(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    kills = 0
    # The longest lives write the log through the point where SQLite folds it into the file.
    for lines in (0, 1, 2, 5, 20, 90, 300, 700):
        command = [sys.executable, "-c", _LIFE, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(lines):
                acknowledged.add(child.stdout.readline().decode().strip())
            child.kill()
            acknowledged.update(line.decode().strip() for line in child.stdout)
        assert child.returncode == -signal.SIGKILL
        kills += 1
        assert acknowledged <= asyncio.run(names(tmp_path))
    assert kills == 8
    assert len(acknowledged) >= 1000
