"""Metadata is saved from a file of a stopped cluster, and a lost file is made again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidelog.cluster.rebuilding import Report
from tidelog.config import load
from tidelog.errors import StorageError
from tidelog.host.host import Host, system_host
from tidelog.server.backups import Restoration, export_metadata, restore_metadata
from tidelog.server.broker import Broker
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.port import Operation

CONFIG = load(overrides={})


def run(work: Callable[[Host], Coroutine[Any, Any, Any]]) -> Any:
    host = system_host("test", 1)
    try:
        return asyncio.run(work(host))
    finally:
        host.offload.close()


def a_stopped_broker(directory: Path) -> None:
    async def start_and_stop(host: Host) -> None:
        overrides = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
        broker = Broker(load(overrides=overrides), host)
        await broker.start()
        await broker.stop()

    run(start_and_stop)


def saved(directory: Path, file: Path) -> None:
    run(lambda host: export_metadata(str(directory), str(file), CONFIG, host))


def restored(file: Path, directory: Path, to: Path | None = None) -> Report:
    asked = Restoration(str(file), [str(directory)], str(to or directory))
    report = run(lambda host: restore_metadata(asked, CONFIG, host))
    assert isinstance(report, Report)
    return report


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_an_interrupted_restore_into_a_file_is_finished_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, file = tmp_path / "data", tmp_path / "export.json"
    a_stopped_broker(data)
    saved(data, file)
    (data / "metadata.db").unlink()
    real, transactions = EmbeddedStore.multi, 0

    async def interrupted(store: EmbeddedStore, operations: Sequence[Operation]) -> int:
        nonlocal transactions
        transactions += 1
        if transactions == 3:
            raise KeyboardInterrupt
        return await real(store, operations)

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedStore, "multi", interrupted)
        with pytest.raises(KeyboardInterrupt):
            restored(file, data)
    with pytest.raises(StorageError, match="has no /controller/epoch"):
        a_stopped_broker(data)
    cluster_id = json.loads(file.read_text())["cluster_id"]
    assert restored(file, data).cluster_id == cluster_id
    a_stopped_broker(data)
    with pytest.raises(StorageError, match="only an empty one can be restored"):
        restored(file, data)


def test_what_was_left_of_the_lost_file_is_put_aside(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "export.json"
    a_stopped_broker(data)
    saved(data, file)
    (data / "metadata.db").unlink()
    (data / "metadata.db-wal").write_bytes(b"the log of another file")
    restored(file, data)
    assert {"metadata.db-wal.lost", "metadata.db.revision.lost"} <= names_in(data)
    a_stopped_broker(data)


def test_nothing_is_made_where_no_broker_would_look_for_it(tmp_path: Path) -> None:
    data, file, elsewhere = tmp_path / "data", tmp_path / "export.json", tmp_path / "elsewhere"
    a_stopped_broker(data)
    saved(data, file)
    elsewhere.mkdir()
    with pytest.raises(StorageError, match="neither the directory of a local cluster nor"):
        restored(file, data, elsewhere)
    assert not names_in(elsewhere)
    with pytest.raises(StorageError, match="is not the data directory of a broker"):
        restored(file, elsewhere)
    with pytest.raises(StorageError, match=r"there is no file .*tidelog cluster export"):
        restored(tmp_path / "missing.json", data)
    with pytest.raises(StorageError, match=r"has no metadata\.db"):
        saved(elsewhere, file)


def test_an_export_is_for_its_owner_alone(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "export.json"
    a_stopped_broker(data)
    saved(data, file)
    assert file.stat().st_mode & 0o077 == 0
