"""Whatever happens to brokers, no clean leader lacks a committed record.

A model beside the planner knows how many committed records each replica has. Brokers go, come back
whole, lossy or emptied; leaders commit and propose ISRs; minimums change.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.cluster.helpers import ENDPOINTS, make_rules
from tidelog.cluster.commands import (
    AlterConfigs,
    AlterPartition,
    BalanceLeaders,
    BeginShutdown,
    Command,
    ConfigChange,
    CreateTopic,
    Decommission,
    ElectLeader,
    Member,
    Proposal,
    Reassign,
    RegisterBroker,
    SetReplicationFactor,
    UnregisterBroker,
)
from tidelog.cluster.image import BrokerRegistration, MetadataImage, PartitionState, TopicImage
from tidelog.cluster.min_isr import MIN_ISR, min_isr_in
from tidelog.cluster.planner import plan
from tidelog.errors import KafkaError
from tidelog.model import NO_LEADER, ConfigResourceType

BROKERS = (1, 2, 3, 4)
TOPICS = {
    "three": {0: [1, 2, 3], 1: [3, 4, 1]},
    "two": {0: [2, 1]},
    "one": {0: [1], 1: [4]},
    "loose": {0: [4, 3, 2]},
    "strict": {0: [2, 3, 4]},
}
CONFIGS = {"loose": {MIN_ISR: "1"}, "strict": {MIN_ISR: "3"}}
Partition = tuple[str, int]
brokers = st.sampled_from(BROKERS)
partitions = st.sampled_from([(name, n) for name, placed in TOPICS.items() for n in placed])


class Cluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.image = MetadataImage(1, "cluster")
        self.rules = make_rules()
        self.committed: dict[Partition, int] = {}
        self.has: dict[tuple[Partition, int], int] = {}
        self.epoch = 100
        self.lossy_lives = 0
        self.directories = dict.fromkeys(BROKERS, 0)
        self.boots = dict.fromkeys(BROKERS, 0)
        self.minimum = 0
        self.unclean_asked = False

    @initialize()
    def found(self) -> None:
        for broker in BROKERS:
            self.do(RegisterBroker(self.life(broker)))
        for name, placed in TOPICS.items():
            self.do(CreateTopic(name, assignments=placed, configs=CONFIGS.get(name, {})))
        for (name, n), state in self.states():
            self.committed[name, n] = 0
            for replica in state.replicas:
                self.has[(name, n), replica] = 0

    # -- what happens ----------------------------------------------------------------------------

    @rule(broker=brokers)
    def goes(self, broker: int) -> None:
        if broker in self.image.brokers:
            self.do(UnregisterBroker(broker, self.image.brokers[broker].epoch))

    @rule(broker=brokers)
    def begins_a_new_life(self, broker: int) -> None:
        self.do(RegisterBroker(self.life(broker)))

    @rule(broker=brokers, left=st.integers(0, 5), emptied=st.booleans())
    def loses_records(self, broker: int, left: int, emptied: bool) -> None:
        self.lossy_lives += 1
        self.boots[broker] += 1
        self.directories[broker] += emptied
        for (partition, replica), count in self.has.items():
            if replica == broker:
                self.has[partition, replica] = 0 if emptied else min(left, count)
        self.do(RegisterBroker(self.life(broker)))

    @rule(broker=brokers)
    def stops_cleanly_and_its_machine_restarts(self, broker: int) -> None:
        known = self.image.brokers.get(broker) or self.image.absent[broker]
        self.boots[broker] += 1
        self.do(RegisterBroker(self.life(broker)._replace(clean_epoch=known.epoch)))

    @rule(partition=partitions, count=st.integers(1, 3))
    def commits(self, partition: Partition, count: int) -> None:
        topic, state = self.find(partition)
        if state.has_leader and len(state.isr) >= min_isr_in(self.image, topic, state):
            self.committed[partition] += count
            for member in state.isr:
                self.has[partition, member] = self.committed[partition]

    @rule(partition=partitions, wanted=st.sets(brokers))
    def proposes(self, partition: Partition, wanted: set[int]) -> None:
        topic, state = self.find(partition)
        if not state.has_leader:
            return
        members = {state.leader} | {
            each
            for each in wanted & set(state.replicas)
            if each in self.image.brokers and not self.image.brokers[each].shutting_down
        }
        for each in members - set(state.isr):
            self.has[partition, each] = self.committed[partition]
        epochs = {each: self.image.brokers[each].epoch for each in members}
        self.do(
            AlterPartition(
                state.leader,
                epochs[state.leader],
                topic.topic_id,
                state.partition,
                Proposal(
                    state.leader_epoch,
                    state.partition_epoch,
                    tuple(Member(*each) for each in epochs.items()),
                ),
            )
        )

    @rule(name=st.sampled_from([*TOPICS, ""]), minimum=st.sampled_from(["1", "2", "3", None]))
    def changes_a_minimum(self, name: str, minimum: str | None) -> None:
        kind = ConfigResourceType.TOPIC if name else ConfigResourceType.BROKER
        changes = [] if minimum is None else [ConfigChange(MIN_ISR, minimum)]
        self.do(AlterConfigs(kind, name, changes, replace=True), may_refuse=True)

    @rule(broker=brokers, minimum=st.integers(0, 3))
    def changes_the_minimum_in_a_file(self, broker: int, minimum: int) -> None:
        self.minimum = minimum
        self.do(RegisterBroker(self.life(broker)))

    @rule(broker=brokers)
    def begins_to_shut_down(self, broker: int) -> None:
        if broker in self.image.brokers:
            self.do(BeginShutdown(broker, self.image.brokers[broker].epoch))
            able = {each.id for each in self.image.brokers.values() if not each.shutting_down}
            assert not any(
                state.leader == broker and able & set(state.isr) for _, state in self.states()
            )

    @rule(partition=partitions, unclean=st.booleans())
    def elects(self, partition: Partition, unclean: bool) -> None:
        self.unclean_asked = unclean
        self.do(ElectLeader(*partition, unclean), may_refuse=True)
        self.unclean_asked = False

    @rule()
    def balances(self) -> None:
        self.do(BalanceLeaders())

    @rule(partition=partitions, wanted=st.lists(brokers, min_size=1, max_size=4, unique=True))
    def moves(self, partition: Partition, wanted: list[int]) -> None:
        self.do(Reassign(*partition, wanted), may_refuse=True)

    @rule(partition=partitions)
    def stops_moving(self, partition: Partition) -> None:
        self.do(Reassign(*partition, None), may_refuse=True)

    @rule(broker=brokers)
    def is_decommissioned(self, broker: int) -> None:
        self.do(Decommission(broker), may_refuse=True)

    @rule(name=st.sampled_from([*TOPICS]), factor=st.integers(1, 4))
    def gets_another_factor(self, name: str, factor: int) -> None:
        self.do(SetReplicationFactor(name, factor), may_refuse=True)

    @precondition(lambda self: self.lossy_lives == 0)
    @rule(order=st.permutations(BROKERS), back=st.permutations(BROKERS))
    def all_go_and_come_back_whole(self, order: list[int], back: list[int]) -> None:
        for broker in order:
            self.goes(broker)
        for broker in back:
            self.begins_a_new_life(broker)
        assert all(state.has_leader for _, state in self.states()), self.image.topics

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def leaders_are_alive_and_in_sync(self) -> None:
        for (name, n), state in self.states():
            assert set(state.isr) <= set(self.image.brokers), (name, n, state)
            assert state.leader == NO_LEADER or state.leader in state.isr, (name, n, state)
            assert {*state.isr, *state.elr} <= set(state.replicas), (name, n, state)
            assert not set(state.isr) & set(state.elr), (name, n, state)
            assert {*state.adding, *state.removing} <= set(state.replicas), (name, n, state)
            assert not set(state.adding) & set(state.removing), (name, n, state)
            assert len(set(state.replicas)) == len(state.replicas) and state.target, (name, n)

    @invariant()
    def i10_who_counts_as_complete_has_all_that_is_committed(self) -> None:
        for partition, state in self.states():
            for each in (*state.isr, *state.elr):
                assert self.has[partition, each] >= self.committed[partition], (partition, state)

    @invariant()
    def i11_eligible_leaders_are_kept_only_below_the_minimum(self) -> None:
        for (name, n), state in self.states():
            minimum = min_isr_in(self.image, self.image.topics[name], state)
            assert not state.elr or len(state.isr) < minimum, (name, n, state, minimum)

    # -- helpers ---------------------------------------------------------------------------------

    def life(self, broker: int) -> BrokerRegistration:
        self.epoch += 1
        return BrokerRegistration(
            broker,
            self.epoch,
            None,
            ENDPOINTS,
            f"directory-{broker}-{self.directories[broker]}",
            f"boot-{self.boots[broker]}",
            "mount",
            min_isr=self.minimum,
        )

    def states(self) -> Iterator[tuple[Partition, PartitionState]]:
        for topic in self.image.topics.values():
            for state in topic.partitions:
                yield (topic.name, state.partition), state

    def find(self, partition: Partition) -> tuple[TopicImage, PartitionState]:
        topic = self.image.topics[partition[0]]
        return topic, topic.partitions[partition[1]]

    def do(self, command: Command, may_refuse: bool = False) -> None:
        before = dict(self.states())
        try:
            planned = plan(self.image, command, self.rules)
        except KafkaError:
            assert may_refuse
            return
        self.image = self.image.apply_all(planned.changes, self.image.version + 1)
        lost = {(each.topic, each.state.partition): each for each in planned.losses}
        for partition, state in self.states():
            old = before.get(partition)
            if old is None or old == state:
                continue
            assert state.partition_epoch == old.partition_epoch + 1, (old, state)
            assert state.leader_epoch in (old.leader_epoch, old.leader_epoch + 1), (old, state)
            assert state.leader == old.leader or state.leader_epoch > old.leader_epoch, (old, state)
            for gone in set(old.replicas) - set(state.replicas):
                # It may delete its files.
                self.has[partition, gone] = 0
            for new in set(state.replicas) - set(old.replicas):
                self.has.setdefault((partition, new), 0)
            if partition in lost:
                # Said aloud: what the new leader has is all that is left.
                self.committed[partition] = self.has[partition, state.leader]
                assert self.lossy_lives > 0 or self.unclean_asked, "nobody lost a record"
            elif state.has_leader and state.leader_epoch > old.leader_epoch:
                assert self.has[partition, state.leader] >= self.committed[partition], (old, state)


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=150,
    stateful_step_count=50,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
