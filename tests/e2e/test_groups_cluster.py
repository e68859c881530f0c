"""Groups on three real brokers: a coordinator is killed, and its groups go on where they were."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.blocking import Client
from tidelog.client.group_admin import (
    commit_offsets,
    committed_offsets,
    find_coordinator,
    list_groups,
)
from tidelog.client.operation import retrying
from tidelog.model import TopicPartition as Partition
from tidelog.testing import Cluster

PARTITIONS = [Partition("t", 0), Partition("t", 1)]
RECORDS = 100
PROTOCOLS = ("classic", "consumer")


class Member:
    """A member of a group, which commits whatever it has read."""

    def __init__(self, cluster: Cluster, protocol: str) -> None:
        self.group = f"members-{protocol}"
        self.seen: set[int] = set()
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": self.group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                # Where a coordinator says "no offset" for one that was committed, this ends it.
                "auto.offset.reset": "error",
            }
        )
        self.consumer.subscribe(["t"])

    def read(self, total: int) -> None:
        """Read and commit until it has seen so many records."""
        while len(self.seen) < total:
            for message in self.consumer.consume(20, 1.0):
                assert message.error() is None, message.error()
                self.seen.add(int(message.value() or b""))
            self.commit()

    def commit(self) -> None:
        """Until the coordinator of the day takes it, if there is anything to commit."""
        while True:
            try:
                self.consumer.commit(asynchronous=False)
                return
            except KafkaException as error:
                if error.args[0].name() == "_NO_OFFSET":
                    return
                assert error.args[0].retriable(), error


def produce(cluster: Cluster, first: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(first, first + RECORDS):
        producer.produce("t", str(number).encode(), str(number).encode())
    assert producer.flush(60) == 0


def coordinator_of(client: Client, group: str) -> int:
    return client.run(retrying(client.cluster, lambda: find_coordinator(client.cluster, group)))


def test_groups_go_on_when_their_coordinator_is_killed() -> None:
    names = [f"group-{number}" for number in range(12)]
    with (
        Cluster(brokers=3, settings={"offsets.topic.num.partitions": 6}) as cluster,
        Client(cluster.bootstrap_servers) as client,
    ):
        client.run(create_topic(client.cluster, NewTopic("t", 2, 3)))
        for number, name in enumerate(names):
            client.run(commit_offsets(client.cluster, name, {PARTITIONS[0]: number}))
        for protocol in PROTOCOLS:
            start = dict.fromkeys(PARTITIONS, 0)
            client.run(commit_offsets(client.cluster, f"members-{protocol}", start))
        members = [Member(cluster, protocol) for protocol in PROTOCOLS]
        try:
            produce(cluster, 0)
            for member in members:
                member.read(RECORDS // 2)
            killed = coordinator_of(client, members[0].group)
            cluster.kill(killed)
            for number, name in enumerate(names):
                found = client.run(committed_offsets(client.cluster, name, [PARTITIONS[0]]))
                assert found == {PARTITIONS[0]: number}
            assert coordinator_of(client, members[0].group) != killed
            client.run(commit_offsets(client.cluster, names[0], {PARTITIONS[0]: 99}))
            listed = {each.name for each in client.run(list_groups(client.cluster))}
            assert listed == {*names, *(member.group for member in members)}
            produce(cluster, RECORDS)
            for member in members:
                member.read(2 * RECORDS)
                assert client.run(committed_offsets(client.cluster, member.group)) == {
                    tp: member.consumer.get_watermark_offsets(TopicPartition(*tp))[1]
                    for tp in PARTITIONS
                }
        finally:
            for member in members:
                member.consumer.close()
