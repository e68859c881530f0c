"""A directory of several brokers: made, grown, refused, and made from that of one broker."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.errors import StorageError
from tidelog.storage.checkpoint import read_bytes, write_durably
from tidelog.storage.identity import META, DirectoryIdentity, encode_identity
from tidelog.storage.local_cluster import READY, read_local_cluster, refuse_local_cluster
from tidelog.supervisor.directories import ClusterDirectory
from tidelog.testing.disk import CrashMode, PowerCut, SimulatedDisk

DIRECTORY = "/data"
FILES = {
    META: encode_identity(DirectoryIdentity("cluster", 0, UUID(int=7))),
    ".kafka_cleanshutdown": b"{}",
    "recovery-point-offset-checkpoint": b"0\n0\n",
    "orders-0/00000000000000000000.log": b"records",
    "orders-1/00000000000000000000.log": b"more records",
    "orders-1/partition.metadata": b"version: 0\n",
}
METADATA = {"metadata.db": b"tables", "metadata.db-wal": b"log", "metadata.db.revision": b"7"}


def disk_of_one_broker() -> SimulatedDisk:
    disk = SimulatedDisk()
    for name, data in {**FILES, **METADATA}.items():
        path = f"{DIRECTORY}/{name}"
        disk.make_dir(path.rpartition("/")[0])
        write_durably(disk, path, data)
    disk.sync_dir("/")
    disk.sync_dir(DIRECTORY)
    return disk


def is_in(disk: SimulatedDisk, directory: str, files: dict[str, bytes]) -> bool:
    return all(read_bytes(disk, f"{directory}/{name}") == data for name, data in files.items())


def test_a_new_directory_is_one_of_so_many_brokers_once_its_store_exists() -> None:
    disk = SimulatedDisk()
    directory = ClusterDirectory(disk, DIRECTORY)
    directory.open(3)
    assert directory.is_new
    directory.close()
    # Killed before the store was there: it may still be made.
    directory.open(3)
    assert directory.is_new
    directory.confirm()
    directory.close()
    directory.open(3)
    assert not directory.is_new


def test_a_directory_takes_more_brokers_and_never_fewer() -> None:
    disk = SimulatedDisk()
    directory = ClusterDirectory(disk, DIRECTORY)
    directory.open(2)
    directory.confirm()
    directory.close()
    directory.open(4)
    directory.close()
    with pytest.raises(StorageError, match=r"holds 4 brokers; start them all with --brokers 4"):
        directory.open(3)
    assert read_local_cluster(disk, DIRECTORY) == (4, READY)


def test_the_directory_of_one_broker_becomes_broker_0s_after_a_crash_at_any_step() -> None:
    steps = 0
    while True:
        disk = disk_of_one_broker()
        disk.fail_at(disk.calls + steps + 1, "crash")
        try:
            ClusterDirectory(disk, DIRECTORY).open(3)
        except PowerCut:
            disk = disk.crash(CrashMode.KEEP_ALL)
            # One broker finds all that it had, or is told to stay away.
            if not is_in(disk, DIRECTORY, {**FILES, **METADATA}):
                with pytest.raises(StorageError, match="up --brokers 3"):
                    refuse_local_cluster(disk, DIRECTORY)
            directory = ClusterDirectory(disk, DIRECTORY)
            directory.open(3)
            assert not directory.is_new
            assert is_in(disk, f"{DIRECTORY}/0", FILES), steps
            assert is_in(disk, DIRECTORY, METADATA), steps
            assert read_local_cluster(disk, DIRECTORY) == (3, READY)
            steps += 1
            continue
        break
    assert steps > 20


def test_a_directory_in_use_is_refused() -> None:
    disk = SimulatedDisk()
    ClusterDirectory(disk, DIRECTORY).open(2)
    with pytest.raises(StorageError, match="in use by another process"):
        ClusterDirectory(disk, DIRECTORY).open(2)


def test_what_cannot_become_broker_0s_is_refused_and_left_alone() -> None:
    disk = disk_of_one_broker()
    disk.unlink(f"{DIRECTORY}/metadata.db")
    with pytest.raises(StorageError, match="whose metadata is elsewhere"):
        ClusterDirectory(disk, DIRECTORY).open(3)
    disk = disk_of_one_broker()
    identity = DirectoryIdentity("cluster", 5, UUID(int=7))
    write_durably(disk, f"{DIRECTORY}/{META}", encode_identity(identity))
    with pytest.raises(StorageError, match="the directory of broker 5"):
        ClusterDirectory(disk, DIRECTORY).open(3)
    disk = disk_of_one_broker()
    disk.make_dir(f"{DIRECTORY}/0")
    with pytest.raises(StorageError, match="is in the way"):
        ClusterDirectory(disk, DIRECTORY).open(3)
    assert is_in(disk, DIRECTORY, {**FILES, **METADATA})
