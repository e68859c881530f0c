"""Commands, answers and updates come back as they went, also between versions."""

from __future__ import annotations

import json
from typing import Any, get_args
from uuid import UUID

import pytest

from tidelog.cluster import changes, commands, wire
from tidelog.cluster.changes import ChangeBatch, Update
from tidelog.cluster.image import (
    BrokerRegistration,
    Endpoint,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from tidelog.errors import ProtocolError
from tidelog.security.acl import AclBinding, AclFilter
from tidelog.security.credentials import ScramCredential

ID = UUID(int=7)
BROKER = BrokerRegistration(
    1, 5, "r", (Endpoint("PLAINTEXT", "h", 9092),), "d", "b", "m", 4, 2, shutting_down=True
)
STATE = PartitionState(0, 1, 3, (1, 2, 3), (1,), 4, (2,), (2,), (3,), (2,))
TOPIC = TopicImage("t", ID, (STATE,), {"retention.ms": "1"})
CHANGE = commands.ConfigChange("a", None, commands.ConfigOperation.DELETE)
ACL = AclBinding(2, 3, "t", "User:a", "*", 3, 3)
CREDENTIAL = ScramCredential(b"salt", b"\x00stored", b"server\xff", 4096)
ENTITY = (("client-id", None), ("user", "a"))
COMMANDS: list[Any] = [
    commands.RegisterBroker(BROKER),
    commands.UnregisterBroker(1, 5),
    commands.CreateTopic("t", 3, 1, {0: (1, 2)}, {"a": "b"}, validate_only=True),
    commands.DeleteTopic(topic_id=ID),
    commands.ConfirmDeletion(1, 5, (ID,)),
    commands.AddPartitions("t", 4, ((1,), (2,))),
    commands.AlterConfigs(2, "t", (CHANGE,), replace=True),
    commands.AllocateProducerIds(1, 5),
    commands.ElectLeader("t", 0, unclean=True),
    commands.BalanceLeaders(),
    commands.BeginShutdown(1, 5),
    commands.Reassign("t", 0, (1, 2)),
    commands.SetReplicationFactor("t", 3),
    commands.RaiseInternalTopics(),
    commands.Decommission(1),
    commands.RemoveBroker(1),
    commands.GiveUpReplicas(1, 5, (commands.ReplicaKey(ID, 0),)),
    commands.AlterPartition(1, 5, ID, 0, commands.Proposal(3, 4, (commands.Member(1, 5),))),
    commands.AlterScramCredentials("a", {"SCRAM-SHA-256": CREDENTIAL, "SCRAM-SHA-512": None}),
    commands.CreateAcls((ACL,)),
    commands.DeleteAcls((AclFilter(), AclFilter(resource_name="t"))),
    commands.AlterClientQuotas(ENTITY, {"producer_byte_rate": 1.5, "consumer_byte_rate": None}),
]
CHANGES: list[Any] = [
    changes.BrokerRegistered(BROKER),
    changes.BrokerGone(1),
    changes.BrokerRemoved(1),
    changes.TopicCreated(TOPIC),
    changes.TopicDeleted("t", ID, 1),
    changes.DeletionConfirmed(ID, (1, 2)),
    changes.PartitionsAdded("t", (STATE,)),
    changes.PartitionsChanged("t", (STATE,)),
    changes.TopicConfigsChanged("t", {}),
    changes.BrokerConfigsChanged("1", {"a": "b"}),
    changes.GroupConfigsChanged("g", {"a": "b"}),
    changes.ProducerIdsAllocated(1, 1000),
    changes.ScramCredentialChanged("a", "SCRAM-SHA-256", CREDENTIAL),
    changes.AclsChanged((ACL,), (ACL._replace(host="h"),)),
    changes.ClientQuotasChanged(ENTITY, {"producer_byte_rate": 1.5}),
]


def test_every_command_comes_back() -> None:
    for command in COMMANDS:
        assert wire.decode(commands.Command, wire.encode(command)) == command
    tried = {type(each) for each in COMMANDS}
    assert tried == set(get_args(commands.Command)), "a command without a case here"


def test_every_change_comes_back() -> None:
    update = Update(None, (ChangeBatch(9, tuple(CHANGES)),))
    assert wire.decode(Update, wire.encode(update)) == update
    tried = {type(each) for each in CHANGES}
    assert tried == set(get_args(changes.Change)), "a change without a case here"


def test_a_whole_image_comes_back() -> None:
    image = MetadataImage(3, "c", 1, 2).apply_all(CHANGES[:1] + CHANGES[3:4] + CHANGES[-3:], 4)
    assert image.acls and image.scram_credentials and image.client_quotas
    assert wire.decode(Update, wire.encode(Update(image))) == Update(image)


def test_fields_of_a_newer_version_are_passed_over_and_those_of_an_older_have_defaults() -> None:
    plain = json.loads(wire.encode(changes.BrokerGone(1)))
    plain["reason"] = "new"
    assert wire.decode(changes.Change, json.dumps(plain).encode()) == changes.BrokerGone(1)
    bare = {"_": "CreateTopic", "name": "t"}
    decoded = wire.decode(commands.Command, json.dumps(bare).encode())
    assert decoded == commands.CreateTopic("t")


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"_":"Nothing"}', b'{"_":"BrokerGone","broker_id":"x"}',
     b'{"_":"BrokerGone"}', b'{"_":"TopicDeleted","topic":"t","topic_id":"zz","partition_count":1}',
     b'{"_":"BrokerGone","broker_id":true}', b"\xff\xfe"],
)  # fmt: skip
def test_what_is_not_understood_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.decode(changes.Change, data)
