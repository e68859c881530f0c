"""What the audit log says of the things that administrators change: their names and their states.

A key names a thing: its kind and what it is called, e.g. `("Topic", "orders")`. A state is what can
be read of it here and now, small and without secrets; None where it does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tidelog.config.table import TOPIC_SETTINGS, altered_broker_setting, group_setting
from tidelog.errors import KafkaError
from tidelog.model import NO_TOPIC_ID, ConfigResourceType
from tidelog.security.acl import ALL, ANY, AclBinding, AclFilter, PatternType, Permission
from tidelog.security.acl_messages import filter_asked_for, rule_in_answer, rule_to_create
from tidelog.security.authorizer import Operation, ResourceType
from tidelog.security.quota_entities import QuotaEntity

if TYPE_CHECKING:
    from tidelog.server.context import RequestContext

Key = tuple[Any, ...]

# The members of messages that say what something is called.
NAMING: Final = ("name", "topic", "topic_name", "group_id", "resource_name", "feature", "user")
HIDDEN: Final = "(hidden)"
_LIST_MAX: Final = 100
_TEXT_MAX: Final = 1000


def text_of(key: Key) -> str:
    """A key as one word: `Topic:orders`, `Partition:orders-3`."""
    kind, *names = key
    (first, *_) = names or ("",)
    if isinstance(first, AclBinding | AclFilter):
        return f"{kind}:{_acl_text(first)}"
    if isinstance(first, tuple):
        return f"{kind}:{_entity_text(first)}"
    return f"{kind}:{'-'.join(names)}"


# -- keys -----------------------------------------------------------------------------------------


def partitions_of(field: str, name: str) -> Callable[[Any, Any], Iterator[Key]]:
    """The keys of a request that has partitions by topic; one that names none means all."""

    def keys(request: Any, context: Any) -> Iterator[Key]:
        for topic in getattr(request, field) or ():
            for each in topic.partitions:
                index = each if isinstance(each, int) else each.partition_index
                yield "Partition", getattr(topic, name), str(index)

    return keys


def topics_to_delete(request: Any, context: RequestContext[Any]) -> Iterator[Key]:
    for name in request.topic_names:
        yield "Topic", name
    for each in request.topics:
        yield "Topic", each.name or _topic_name(each.topic_id, context)


def _topic_name(topic_id: UUID, context: RequestContext[Any]) -> str:
    return context.image.topic_names.get(topic_id, str(topic_id))


def config_resources(request: Any, context: Any) -> Iterator[Key]:
    for each in request.resources:
        try:
            kind = ConfigResourceType(each.resource_type).name.title().replace("_", "")
        except ValueError:
            kind = f"Type{each.resource_type}"
        yield f"{kind}Config", each.resource_name


def moved_replicas(request: Any, context: Any) -> Iterator[Key]:
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield "Partition", topic.name, str(index)


def offsets_of_group(request: Any, context: RequestContext[Any]) -> Iterator[Key]:
    for topic in request.topics:
        topic_id = getattr(topic, "topic_id", NO_TOPIC_ID)
        name = topic.name or _topic_name(topic_id, context)
        for each in topic.partitions:
            yield "Offset", request.group_id, name, str(each.partition_index)


def users(request: Any, context: Any) -> Iterator[Key]:
    names = {each.name: None for each in (*request.deletions, *request.upsertions)}
    return (("User", name) for name in names)


def created_acls(request: Any, context: Any) -> Iterator[Key]:
    return (("Acl", rule_to_create(each)) for each in request.creations)


def acl_filters(request: Any, context: Any) -> Iterator[Key]:
    return (("AclFilter", filter_asked_for(each)) for each in request.filters)


def deleted_acls(answer: Any) -> object:
    """The rules that went, as the answer names them."""
    found = [
        rule_in_answer(each, each)
        for result in answer.filter_results
        for each in result.matching_acls[:_LIST_MAX]
        if not each.error_code
    ]
    return {"Acl:" + _acl_text(each): "present" for each in found[:_LIST_MAX]}


def _acl_text(acl: AclBinding | AclFilter) -> str:
    """A rule, or which rules, in words: `ALLOW User:alice READ TOPIC LITERAL orders from *`."""
    kinds, patterns, operations, permissions = (
        _code(each, code)
        for each, code in (
            (ResourceType, acl.resource_type),
            (PatternType, acl.pattern_type),
            (Operation, acl.operation),
            (Permission, acl.permission),
        )
    )
    name, principal, host = (
        "ANY" if each is None else each for each in (acl.resource_name, acl.principal, acl.host)
    )
    return f"{permissions} {principal} {operations} {kinds} {patterns} {name} from {host}"


def _code(kind: type[IntEnum], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return {ANY: "ANY", ALL: "ALL"}.get(code, str(code))


def quota_entities(request: Any, context: Any) -> Iterator[Key]:
    for entry in request.entries:
        pairs = ((each.entity_type, each.entity_name) for each in entry.entity)
        yield "Quota", tuple(sorted(pairs, key=lambda pair: (pair[0], pair[1] or "")))


def _entity_text(entity: QuotaEntity) -> str:
    return ",".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)


# -- states ---------------------------------------------------------------------------------------


def nothing(key: Key, context: Any) -> None:
    """For what has no state that this broker could read."""


def topic(key: Key, context: RequestContext[Any]) -> object:
    found = context.image.topics.get(key[1])
    if found is None:
        return None
    return {
        "id": str(found.topic_id),
        "partitions": len(found.partitions),
        "replication_factor": found.replication_factor,
        "configs": dict(found.configs),
    }


def leader(key: Key, context: RequestContext[Any]) -> object:
    state = context.image.partition(key[1], int(key[2]))
    return state and {"leader": state.leader, "epoch": state.leader_epoch, "isr": list(state.isr)}


def replicas(key: Key, context: RequestContext[Any]) -> object:
    state = context.image.partition(key[1], int(key[2]))
    if state is None:
        return None
    moving = {"adding": list(state.adding), "removing": list(state.removing)}
    return {"replicas": list(state.replicas), **{k: v for k, v in moving.items() if v}}


def log_start(key: Key, context: RequestContext[Any]) -> object:
    try:
        partition = context.tools.replicas.find(key[1], int(key[2]))
    except KafkaError:
        return None
    return {"log_start_offset": partition.log.log_start_offset}


def configs(key: Key, context: RequestContext[Any]) -> object:
    kind, name = key
    image = context.image
    if kind == "TopicConfig":
        found = image.topics.get(name)
        own = found.configs if found is not None else None
    elif kind == "GroupConfig":
        own = image.group_configs.get(name)
    else:
        own = image.broker_configs.get(name) if kind == "BrokerConfig" else None
    if own is None:
        return None
    return {name: HIDDEN if is_secret(name) else shown(value) for name, value in own.items()}


def broker(key: Key, context: RequestContext[Any]) -> object:
    image, broker_id = context.image, int(key[1])
    if broker_id in image.brokers:
        return "registered"
    return "absent" if broker_id in image.absent else None


def _offsets(group_id: str, context: RequestContext[Any]) -> Any:
    for shard in context.tools.coordinator.shards():
        found = shard.offsets.of_group(group_id)
        if found:
            return found
    return {}


def offset(key: Key, context: RequestContext[Any]) -> object:
    _, group_id, name, index = key
    value = _offsets(group_id, context).get(name, {}).get(int(index))
    return None if value is None else value.offset


def group(key: Key, context: RequestContext[Any]) -> object:
    offsets = _offsets(key[1], context)
    count = sum(map(len, offsets.values()))
    return {"offsets": count} if count else None


def leaving_members(request: Any, context: RequestContext[Any]) -> Iterator[Key]:
    """Those that are to leave a group, by the id or else by the instance id."""
    for member_id, instance_id in _leaving(request):
        yield "Member", request.group_id, member_id or instance_id


def _leaving(request: Any) -> list[tuple[str, str]]:
    named = [(each.member_id, each.group_instance_id or "") for each in request.members]
    return named or [(request.member_id, "")]


def _find_group(group_id: str, context: RequestContext[Any]) -> Any:
    for shard in context.tools.coordinator.shards():
        found = shard.table.find(group_id)
        if found is not None:
            return found
    return None


def is_of_others(request: Any, context: RequestContext[Any]) -> bool:
    """Whether a request has other members leave than the one that sends it: only an administrator
    has several leave, or names one by its instance id alone. A member that nobody knows is none."""
    leaving = _leaving(request)
    if len(leaving) > 1 or not leaving[0][0]:
        return True
    group = _find_group(request.group_id, context)
    member = None if group is None else group.members.get(leaving[0][0])
    if member is None:
        return False
    caller = context.header.client_id or "", f"/{context.connection.host}"
    return (member.client_id, member.client_host) != caller


def member(key: Key, context: RequestContext[Any]) -> object:
    _, group_id, name = key
    group = _find_group(group_id, context)
    if group is None:
        return None
    found = group.members.get(name) or group.members.get(group.instances.get(name, ""))
    if found is None:
        return None
    return {"client_id": found.client_id, "client_host": found.client_host}


def credentials(key: Key, context: RequestContext[Any]) -> object:
    """Which mechanisms a user has; nothing by which a password could be guessed."""
    known = context.image.scram_credentials
    own = {name: each.iterations for (user, name), each in known.items() if user == key[1]}
    return own or None


def acl(key: Key, context: RequestContext[Any]) -> object:
    return "present" if key[1] in context.image.acls else None


def quota(key: Key, context: RequestContext[Any]) -> object:
    limits = context.image.client_quotas.get(key[1])
    return dict(limits) if limits else None


# -- what was asked for ---------------------------------------------------------------------------


def is_secret(name: str) -> bool:
    """Whether the value of a setting of this name is kept to itself; those nobody knows are."""
    row = TOPIC_SETTINGS.get(name) or group_setting(name) or altered_broker_setting(name)
    return row.is_sensitive


def shown(value: object) -> Any:
    """A message, or part of one, as JSON: bounded, without bytes and without secret settings."""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value)} bytes)"
    if isinstance(value, str):
        return value if len(value) <= _TEXT_MAX else f"{value[:_TEXT_MAX]}... ({len(value)})"
    if isinstance(value, list):
        some = [shown(each) for each in value[:_LIST_MAX]]
        return some if len(value) <= _LIST_MAX else [*some, f"and {len(value) - _LIST_MAX} more"]
    if is_dataclass(value) and not isinstance(value, type):
        return _shown_message(value)
    return str(value) if isinstance(value, UUID) else value


def _shown_message(message: Any) -> dict[str, object]:
    members: dict[str, object] = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if value in (None, "", [], NO_TOPIC_ID):
            continue
        is_setting = field.name == "value" and isinstance(value, str)
        if is_setting and is_secret(getattr(message, "name", "")):
            members[field.name] = HIDDEN
        else:
            members[field.name] = shown(value)
    return members
