"""The metadata of a cluster is lost: an old export and the data directories bring it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.test_cluster_cli import Shell
from tests.e2e.test_up_cluster import health, read, write
from tidelog.client.admin import NewTopic, create_topic, describe_cluster
from tidelog.client.blocking import Client
from tidelog.client.group_admin import commit_offsets, committed_offsets
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.testing import Broker, Cluster, ZooKeeper

GROUP = "readers"
SHELL = Shell("")
SETTINGS = {"zookeeper.session.timeout.ms": 3000, "offsets.topic.num.partitions": 3}


def values(name: str, count: int = 60) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


def create(servers: str, topic: str, partitions: int = 2) -> None:
    with Client(servers) as client:
        client.run(create_topic(client.cluster, NewTopic(topic, partitions)))


def commit(servers: str, offset: int) -> None:
    with Client(servers) as client:
        client.run(commit_offsets(client.cluster, GROUP, {TopicPartition("orders", 0): offset}))


def committed(servers: str) -> dict[TopicPartition, int]:
    with Client(servers) as client:
        return client.run(committed_offsets(client.cluster, GROUP))


def cluster_id(servers: str) -> str:
    with Client(servers) as client:
        return client.run(describe_cluster(client.cluster)).cluster_id


def lose_metadata(directory: Path) -> None:
    (directory / "metadata.db").unlink()


def live_on_after_an_export(cluster: Cluster, export: Path, store: str) -> None:
    """Save the metadata; then more topics, records, commits, and a broker that falls behind."""
    servers = cluster.bootstrap_servers
    create(servers, "orders")
    write(servers, "orders", values("before"))
    commit(servers, 1)
    SHELL.run("cluster", "export", str(export), "--from", store)
    create(servers, "later")
    write(servers, "later", values("later"))
    write(servers, "orders", values("after"))
    cluster.kill(2)
    write(servers, "orders", values("without two"))
    commit(servers, 7)


def check_all_is_there(cluster: Cluster, name: str) -> None:
    servers = cluster.bootstrap_servers
    assert cluster_id(servers) == name
    write(servers, "orders", values("again"))
    orders = {*values("before"), *values("after"), *values("without two"), *values("again")}
    assert read(servers, "orders", 2, len(orders)) == orders
    assert read(servers, "later", 2, 60) == set(values("later"))
    assert committed(servers) == {TopicPartition("orders", 0): 7}
    assert health(servers, "--wait")[0] == 0


def test_a_local_cluster_whose_metadata_is_lost_is_restored(tmp_path: Path) -> None:
    data, export = tmp_path / "data", tmp_path / "export.json"
    with Cluster(3, data_dir=data, settings=SETTINGS) as cluster:
        name = cluster_id(cluster.bootstrap_servers)
        live_on_after_an_export(cluster, export, str(data))
    restore = ("cluster", "restore", str(export), "--to", str(data), "--data-dir")
    said = SHELL.run(*restore, str(data), code=1)
    assert f"holds cluster {name}, and only an empty one can be restored" in said

    lose_metadata(data)
    with pytest.raises(TidelogError, match=r"metadata\.db is missing"):
        Cluster(3, data_dir=data).start()
    said = SHELL.run(*restore, str(data / "0"), "--data-dir", str(data / "1"), code=1)
    assert "the directories of these brokers were not named: 2" in said

    said = SHELL.run(*restore, str(data))
    assert "found: topic later, created after the export" in said
    assert f"restored cluster {name} with 3 topics" in said
    with Cluster(3, data_dir=data, settings=SETTINGS) as cluster:
        check_all_is_there(cluster, name)


@pytest.mark.spark
def test_a_cluster_whose_zookeeper_is_lost_is_restored_into_another(tmp_path: Path) -> None:
    data, export = tmp_path / "data", tmp_path / "export.json"
    with (
        ZooKeeper(nodes=1) as lost,
        Cluster(3, data_dir=data, store=lost.address, settings=SETTINGS) as cluster,
    ):
        name = cluster_id(cluster.bootstrap_servers)
        live_on_after_an_export(cluster, export, lost.address)
    with ZooKeeper(nodes=1) as ensemble:
        directories = [word for each in range(3) for word in ("--data-dir", str(data / str(each)))]
        restore = ("cluster", "restore", str(export), "--to", ensemble.address, *directories)
        SHELL.run(*restore)
        assert f"holds cluster {name}" in SHELL.run(*restore, code=1)
        with Cluster(3, data_dir=data, store=ensemble.address, settings=SETTINGS) as cluster:
            check_all_is_there(cluster, name)


def test_a_broker_by_itself_is_restored_and_refuses_an_export_of_another(tmp_path: Path) -> None:
    data, export, other = tmp_path / "data", tmp_path / "export.json", tmp_path / "other.json"
    with Broker(data_dir=data) as broker:
        servers = broker.bootstrap_servers
        write(servers, "orders", values("one"))
        in_use = SHELL.run("cluster", "export", str(export), "--from", str(data), code=1)
        assert "in use" in in_use
    SHELL.run("cluster", "export", str(export), "--from", str(data))
    with Broker(data_dir=tmp_path / "another"):
        pass
    SHELL.run("cluster", "export", str(other), "--from", str(tmp_path / "another"))

    lose_metadata(data)
    restore = ("cluster", "restore", "--to", str(data), "--data-dir", str(data))
    assert "belongs to cluster" in SHELL.run(*restore, str(other), code=1)
    damaged = json.loads(export.read_text())
    damaged["nodes"]["/producer_ids/next"]["next"] = 0
    damaged["cluster_id"] = "kept"
    damaged["nodes"]["/topics/orders"]["partitions"] = 7
    (tmp_path / "damaged.json").write_text(json.dumps(damaged))
    said = SHELL.run(*restore, str(tmp_path / "damaged.json"), code=1)
    assert "its checksum does not match" in said

    restored = SHELL.json(*restore, str(export))
    assert restored["topics"] == 1 and restored["offline"] == {}
    with Broker(data_dir=data) as broker:
        assert read(broker.bootstrap_servers, "orders", 1, 60) == set(values("one"))
