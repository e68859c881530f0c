"""Every administrative request is one line of the audit log, and nothing secret is in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.e2e.in_process import InProcessBroker, RawConnection
from tests.unit.server.permissions import Permissions, connect_as, put_in_force
from tidelog.errors import ErrorCode
from tidelog.protocol.apis import api
from tidelog.protocol.messages import alter_configs as full
from tidelog.protocol.messages import incremental_alter_configs as incremental
from tidelog.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
)
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaOperation,
)
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tidelog.protocol.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from tidelog.server.audit_log import NOT_ADMIN
from tidelog.server.audited import AUDITED
from tidelog.server.routes import HANDLERS


def in_a_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """A test that is a coroutine, run to its end."""

    def run(tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(test(tmp_path), 60))

    run.__name__ = test.__name__
    return run


def topic_config(value: str) -> incremental.IncrementalAlterConfigsRequest:
    changes = [incremental.AlterableConfig("retention.ms", 0, value)]
    resource = incremental.AlterConfigsResource(2, "t", changes)
    return incremental.IncrementalAlterConfigsRequest([resource])


def offsets(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, offset, -1, "")
    topics = [OffsetCommitRequestTopic("t", partitions=[partition])]
    return OffsetCommitRequest("g", -1, "", None, -1, topics)


# Rules can be changed where there is an authorizer.
AUTHORIZED = {"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}
RULE = "ALLOW User:alice READ TOPIC LITERAL t from *"
SAMPLES: dict[str, tuple[object, dict[str, object]]] = {
    # The request, and what its line must say.
    "CreateTopics": (
        CreateTopicsRequest([CreatableTopic("t", 1, 1)]),
        {"resource": ["Topic:t"], "outcome": "ok"},
    ),
    "CreatePartitions": (
        CreatePartitionsRequest([CreatePartitionsTopic("t", 2, None)]),
        {"resource": ["Topic:t"], "outcome": "ok"},
    ),
    "AlterConfigs": (
        full.AlterConfigsRequest(
            [full.AlterConfigsResource(2, "t", [full.AlterableConfig("retention.ms", "5000")])]
        ),
        {
            "before": {"TopicConfig:t": {}},
            "after": {"TopicConfig:t": {"retention.ms": "5000"}},
        },
    ),
    "IncrementalAlterConfigs": (
        topic_config("7000"),
        {
            "before": {"TopicConfig:t": {"retention.ms": "5000"}},
            "after": {"TopicConfig:t": {"retention.ms": "7000"}},
        },
    ),
    "DeleteRecords": (
        DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)])]),
        {"before": {"Partition:t-0": {"log_start_offset": 0}}, "outcome": "ok"},
    ),
    "ElectLeaders": (
        ElectLeadersRequest(0, [TopicPartitions("t", [0])]),
        {"resource": ["Partition:t-0"], "outcome": "failed"},
    ),
    "AlterPartitionReassignments": (
        AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic("t", [ReassignablePartition(0, [7])])]
        ),
        {"before": {"Partition:t-0": {"replicas": [0]}}, "outcome": "failed"},
    ),
    "UnregisterBroker": (UnregisterBrokerRequest(9), {"resource": ["Broker:9"]}),
    "OffsetCommit": (
        offsets(0),
        {"resource": ["Offset:g-t-0"], "after": {"Offset:g-t-0": 0}, "outcome": "ok"},
    ),
    "OffsetDelete": (
        OffsetDeleteRequest(
            "g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
        ),
        {"before": {"Offset:g-t-0": 0}, "outcome": "ok"},
    ),
    "CreateAcls": (
        CreateAclsRequest([AclCreation(2, "t", 3, "User:alice", "*", 3, 3)]),
        {
            "resource": [f"Acl:{RULE}"],
            "after": {f"Acl:{RULE}": "present"},
            "outcome": "ok",
        },
    ),
    "DeleteAcls": (
        DeleteAclsRequest([DeleteAclsFilter(1, None, 1, "User:alice", None, 1, 1)]),
        {
            "resource": ["AclFilter:ANY User:alice ANY ANY ANY ANY from ANY"],
            "before": {f"Acl:{RULE}": "present"},
        },
    ),
    "AlterUserScramCredentials": (
        AlterUserScramCredentialsRequest(
            upsertions=[ScramCredentialUpsertion("bob", 1, 8192, b"salt" * 6, b"CANARY-2" * 4)]
        ),
        {"after": {"User:bob": {"SCRAM-SHA-256": 8192}}, "outcome": "ok"},
    ),
    "AlterClientQuotas": (
        AlterClientQuotasRequest(
            [
                QuotaAlteration(
                    [QuotaEntityPart("user", None)], [QuotaOperation("producer_byte_rate", 1024.0)]
                )
            ]
        ),
        {"after": {"Quota:user=<default>": {"producer_byte_rate": 1024.0}}, "outcome": "ok"},
    ),
    "LeaveGroup": (
        LeaveGroupRequest("g", members=[MemberIdentity("", "i-1"), MemberIdentity("m", None)]),
        {"resource": ["Member:g-i-1", "Member:g-m"], "outcome": "failed"},
    ),
    "InitProducerId": (
        InitProducerIdRequest("tx", 1_000, enable2_pc=True),
        {"resource": ["TransactionalId:tx"], "outcome": "failed"},
    ),
    "DeleteGroups": (DeleteGroupsRequest(["nobody"]), {"outcome": "failed"}),
    "DeleteTopics": (
        DeleteTopicsRequest(topic_names=["t"]),
        {"resource": ["Topic:t"], "outcome": "ok"},
    ),
}
VERSIONS = {"DeleteTopics": 5, "OffsetCommit": 8}


async def log_of(broker: InProcessBroker, directory: Path) -> list[dict[str, Any]]:
    assert await broker.parts.requests.audit.settle()
    found = sorted((directory / "audit").glob("*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


async def call(connection: RawConnection, name: str, request: object) -> Any:
    version = VERSIONS.get(name, api(name).served[1])
    return await connection.call(name, version, request)


async def find_coordinator(connection: RawConnection) -> None:
    """Have the topic of offsets made, and its one partition loaded."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while (await call(connection, "FindCoordinator", request)).coordinators[0].error_code:
        pass


def test_every_api_is_audited_or_known_not_to_be() -> None:
    assert HANDLERS.keys() <= AUDITED.keys() | NOT_ADMIN
    assert not AUDITED.keys() & NOT_ADMIN


@in_a_loop
async def test_every_admin_api_writes_exactly_one_line(tmp_path: Path) -> None:
    tried = [*SAMPLES, *(name for name in AUDITED if name in HANDLERS and name not in SAMPLES)]
    tried.remove("DeleteTopics")
    tried.append("DeleteTopics")
    async with InProcessBroker(tmp_path, AUTHORIZED) as broker:
        connection = broker.connect()
        await find_coordinator(connection)
        for number, name in enumerate(tried, 1):
            request, wanted = SAMPLES.get(name, (api(name).request(), {}))
            await call(connection, name, request)
            lines = await log_of(broker, tmp_path)
            assert len(lines) == number, (name, lines[-2:])
            line = lines[-1]
            assert line["action"] == name and line["kind"] == "admin"
            assert line["principal"] == "User:ANONYMOUS" and line["host"] == "127.0.0.1"
            assert line["request_id"] and line["client_id"] == "raw"
            assert {key: line.get(key) for key in wanted} == wanted, (name, line)
            assert "CANARY" not in json.dumps(line)
    assert len(tried) >= 19


@in_a_loop
async def test_offsets_that_go_back_each_have_a_line(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        connection = broker.connect()
        await find_coordinator(connection)
        await call(connection, "CreateTopics", CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
        for offset in (5, 6, 7, 8, 3, 4, 2):
            await call(connection, "OffsetCommit", offsets(offset))
        lines = await log_of(broker, tmp_path)
    key = "Offset:g-t-0"
    first, *back = [
        (line.get("before", {}).get(key), line["after"][key])
        for line in lines
        if line["action"] == "OffsetCommit"
    ]
    assert first == (None, 5) and back == [(8, 3), (4, 2)]


@in_a_loop
async def test_a_denied_request_has_one_line_however_often_it_comes(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        put_in_force(Permissions(), broker)
        connection = connect_as("mallory", broker)
        described = DescribeConfigsRequest([DescribeConfigsResource(2, "secret")])
        created = CreateTopicsRequest([CreatableTopic("t", 1, 1)])
        for _ in range(3):
            await call(connection, "DescribeConfigs", described)
            await call(connection, "CreateTopics", created)
            await call(connection, "Metadata", api("Metadata").request(topics=None))
        lines = await log_of(broker, tmp_path)
    assert {line["principal"] for line in lines} == {"User:mallory"}
    (denied,) = [line for line in lines if line["kind"] == "denied"]
    assert (denied["action"], denied["operation"]) == ("DescribeConfigs", "DESCRIBE_CONFIGS")
    assert denied["resource"] == ["Topic:secret"]
    assert [line["outcome"] for line in lines if line["kind"] == "admin"] == ["denied"] * 3


@in_a_loop
async def test_topics_that_are_asked_for_by_name_and_denied_have_one_line(tmp_path: Path) -> None:
    metadata = api("Metadata").request
    asked = [MetadataRequestTopic(name=f"secret-{number}") for number in range(2_000)]
    async with InProcessBroker(tmp_path) as broker:
        put_in_force(Permissions(), broker)
        connection = connect_as("mallory", broker)
        await call(connection, "Metadata", metadata(topics=None))
        await call(connection, "Metadata", metadata(asked, allow_auto_topic_creation=False))
        (line,) = await log_of(broker, tmp_path)
    assert (line["action"], line["operation"]) == ("Metadata", "DESCRIBE")
    assert line["resource"] == ["Topic:secret-0"] and line["outcome"] == "denied"


@in_a_loop
async def test_a_topic_that_is_created_on_first_use_has_a_line(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path, {"auto.create.topics.enable": "true"}) as broker:
        request = MetadataRequest([MetadataRequestTopic(name="new")], True)
        for _ in range(2):
            await broker.connect().call("Metadata", 8, request)
        (line,) = await log_of(broker, tmp_path)
    assert (line["action"], line["resource"]) == ("AutoCreateTopics", ["Topic:new"])
    assert line["principal"] == "User:ANONYMOUS" and line["request_id"]


@in_a_loop
async def test_requests_of_members_and_readers_write_no_line(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        connection = broker.connect()
        for name in ("Metadata", "DescribeConfigs", "DescribeCluster", "ListGroups"):
            await call(connection, name, api(name).request())
        member = OffsetCommitRequest("g", 3, "somebody", None, -1, [])
        await call(connection, "OffsetCommit", member)
        assert await log_of(broker, tmp_path) == []
        assert not (tmp_path / "audit").exists()


async def joined(connection: RawConnection, instance_id: str | None = None) -> str:
    """Have a member join the group, and its id."""
    request = JoinGroupRequest(
        "g", 30_000, 1_000, "", instance_id, "consumer", [JoinGroupRequestProtocol("range", b"")]
    )
    answer = await call(connection, "JoinGroup", request)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = await call(connection, "JoinGroup", request)
    assert not answer.error_code
    return str(answer.member_id)


@in_a_loop
async def test_a_member_that_an_administrator_removes_has_a_line_and_one_that_leaves_has_none(
    tmp_path: Path,
) -> None:
    async with InProcessBroker(tmp_path) as broker:
        connection = broker.connect()
        await find_coordinator(connection)
        member_id = await joined(connection)
        leave = LeaveGroupRequest("g", members=[MemberIdentity(member_id)])
        answer = await call(connection, "LeaveGroup", leave)
        assert [each.error_code for each in answer.members] == [0]
        assert (await call(connection, "LeaveGroup", leave)).members[0].error_code
        assert await log_of(broker, tmp_path) == [], "by itself"
        member_id = await joined(connection)
        other = connect_as("admin", broker)
        other.client_id = "another client"
        leave = LeaveGroupRequest("g", members=[MemberIdentity(member_id)])
        answer = await call(other, "LeaveGroup", leave)
        assert [each.error_code for each in answer.members] == [0]
        (line,) = await log_of(broker, tmp_path)
        assert (line["action"], line["principal"]) == ("LeaveGroup", "User:admin")
        name = f"Member:g-{member_id}"
        assert line["before"] == {name: {"client_id": "raw", "client_host": "/127.0.0.1"}}
        assert line["outcome"] == "ok" and line["resource"] == [name]
        await joined(connection, "i-1")
        leave = LeaveGroupRequest("g", members=[MemberIdentity("", "i-1")])
        answer = await call(connection, "LeaveGroup", leave)
        assert [each.error_code for each in answer.members] == [0]
        assert [each["resource"] for each in await log_of(broker, tmp_path)][1:] == [
            ["Member:g-i-1"]
        ]


@in_a_loop
async def test_values_of_secret_settings_are_not_in_the_log(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        connection = broker.connect()
        for name in ("ssl.key.password", "listener.name.x.sasl.jaas.config", "nobody.knows.this"):
            change = incremental.AlterableConfig(name, 0, "CANARY-1")
            resource = incremental.AlterConfigsResource(4, "", [change])
            request = incremental.IncrementalAlterConfigsRequest([resource])
            await call(connection, "IncrementalAlterConfigs", request)
        lines = await log_of(broker, tmp_path)
    assert len(lines) == 3
    assert "CANARY-1" not in json.dumps(lines) and "(hidden)" in json.dumps(lines)


@in_a_loop
async def test_a_request_with_many_topics_is_complete_in_several_lines(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(1_100)]
    async with InProcessBroker(tmp_path) as broker:
        request = DeleteTopicsRequest(topic_names=names)
        await call(broker.connect(), "DeleteTopics", request)
        lines = await log_of(broker, tmp_path)
    assert [line["part"] for line in lines] == ["1 of 3", "2 of 3", "3 of 3"]
    named = [each for line in lines for each in line["resource"]]
    assert sorted(named) == sorted(f"Topic:{name}" for name in names)
    assert len(lines[0]["errors"]) == 100 and {line["outcome"] for line in lines} == {"failed"}


@in_a_loop
async def test_x32_a_request_about_more_than_the_queue_holds_is_complete(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(25_000)]
    async with InProcessBroker(tmp_path) as broker:
        await call(broker.connect(), "DeleteTopics", DeleteTopicsRequest(topic_names=names))
        lines = await log_of(broker, tmp_path)
    assert [line["part"] for line in lines] == [f"{part} of 50" for part in range(1, 51)]
    assert sum(len(line["resource"]) for line in lines) == len(names)


@in_a_loop
async def test_names_of_clients_cannot_forge_a_line(tmp_path: Path) -> None:
    name = 'a\r\n{"seq":1}\x1b[2J'
    async with InProcessBroker(tmp_path) as broker:
        configs = [CreatableTopicConfig("retention.ms", "\n")]
        request = CreateTopicsRequest([CreatableTopic(name, 1, 1, [], configs)])
        await call(broker.connect(), "CreateTopics", request)
        (line,) = await log_of(broker, tmp_path)
    (path,) = (tmp_path / "audit").iterdir()
    data = path.read_bytes()
    assert data.count(b"\n") == 1 and b"\r" not in data and b"\x1b" not in data
    assert line["resource"] == [f"Topic:{name}"] and line["outcome"] == "failed"


@in_a_loop
async def test_an_audit_log_that_is_off_leaves_no_file(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path, {"audit.log.enable": "false"}) as broker:
        await call(broker.connect(), "DeleteGroups", DeleteGroupsRequest(["nobody"]))
    assert not (tmp_path / "audit").exists() and not (tmp_path / "audit.head").exists()


@in_a_loop
async def test_admin_requests_are_refused_while_the_log_cannot_be_written(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path, {"audit.log.fail.closed": "true"}) as broker:
        request = CreateTopicsRequest([CreatableTopic("a", 1, 1)])
        await call(broker.connect(), "CreateTopics", request)
        (path,) = (tmp_path / "audit").iterdir()
        path.unlink()
        (tmp_path / "audit").rmdir()
        (tmp_path / "audit").write_text("in the way")
        other = CreateTopicsRequest([CreatableTopic("b", 1, 1)])
        for _ in range(2):
            connection = broker.connect()
            await connection.ask(connection.encode("CreateTopics", 5, other))
            assert connection.is_closed
        names = broker.parts.metadata.image.topics
        assert "a" in names
        # The first was done before the log was found to be broken, and not acknowledged.
        third = CreateTopicsRequest([CreatableTopic("c", 1, 1)])
        connection = broker.connect()
        await connection.ask(connection.encode("CreateTopics", 5, third))
        assert "c" not in broker.parts.metadata.image.topics
        (tmp_path / "audit").unlink()
        await call(broker.connect(), "CreateTopics", third)
        assert "c" in broker.parts.metadata.image.topics
