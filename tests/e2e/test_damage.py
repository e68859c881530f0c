"""Damaged files of real brokers: found by the scrub, mended from another replica."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.chaos.damage import flip_bit_of
from tests.waiting import eventually
from tidelog.testing import Cluster

RECORDS = 400
BROKERS = 3


class Place:
    """A topic with three replicas on three brokers."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self._directory = directory
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topic = NewTopic("t", 1, BROKERS, config={"retention.ms": "-1"})
        self._admin.create_topics([topic])["t"].result(30)

    @property
    def state(self) -> PartitionMetadata:
        return self._admin.list_topics("t", timeout=10).topics["t"].partitions[0]

    def log_of(self, broker: int) -> Path:
        return self._directory / str(broker) / "t-0" / f"{0:020d}.log"

    def fill(self) -> bytes:
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 0,
             "batch.num.messages": 10}
        )  # fmt: skip
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number)
        assert producer.flush(30) == 0
        eventually(lambda: self.is_whole(None), self.why)
        return self.log_of(0).read_bytes()

    def is_whole(self, content: bytes | None) -> bool:
        """Whether all are in sync and have the same bytes, these where some are given."""
        found = {self.log_of(each).read_bytes() for each in range(BROKERS)}
        state = self.state
        if len(found) > 1 or len(state.isrs) < BROKERS or state.leader < 0:
            return False
        return content is None or found == {content}

    def why(self) -> str:
        sizes = [self.log_of(each).stat().st_size for each in range(BROKERS)]
        return f"isr {self.state.isrs} leader {self.state.leader} sizes {sizes}"

    def values(self) -> list[bytes]:
        consumer = Consumer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "all",
             "auto.offset.reset": "earliest", "check.crcs": True, "enable.auto.commit": False}
        )  # fmt: skip
        consumer.subscribe(["t"])
        found: list[bytes] = []

        def read() -> bool:
            for message in consumer.consume(RECORDS, 1):
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
            return len(found) >= RECORDS

        eventually(read, lambda: f"{len(found)} records")
        consumer.close()
        return found


def test_s3_a_flipped_bit_is_mended_on_a_leader_a_follower_and_one_that_leads_next(
    tmp_path: Path,
) -> None:
    settings = {"log.scrub.interval.ms": 500, "offsets.topic.num.partitions": 1}
    with Cluster(BROKERS, data_dir=tmp_path, settings=settings) as cluster:
        place = Place(cluster, tmp_path)
        good = place.fill()
        leader = place.state.leader
        follower = next(each for each in range(BROKERS) if each != leader)
        for broker, position in ((leader, len(good) // 2), (follower, len(good) // 3)):
            flip_bit_of(place.log_of(broker), position)
            assert place.log_of(broker).read_bytes() != good
            eventually(lambda: place.is_whole(good), place.why, 60)
        # Before the damage is found, its leader is killed: perhaps the damaged one leads then.
        leader = place.state.leader
        damaged = next(each for each in range(BROKERS) if each != leader)
        flip_bit_of(place.log_of(damaged), len(good) // 4)
        cluster.kill(leader)
        cluster.restart(leader)
        eventually(lambda: place.is_whole(good), place.why, 60)
        assert sorted(map(int, place.values())) == list(range(RECORDS))
