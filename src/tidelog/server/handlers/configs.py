"""DescribeConfigs (32, versions 1 to 4), AlterConfigs (33, 0 to 2),
IncrementalAlterConfigs (44, 0 to 1).

Behaviour: topics (type 2) and brokers (type 4; an empty name means the default of all brokers).
Each setting comes with its source, its synonyms in the order in which they are asked, its type and,
on request, its help. Values are checked before anything changes; each resource is done wholly or
not at all.
Gaps: other resource types are refused with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tidelog.cluster.commands import (
    AlterBrokerConfigs,
    AlterTopicConfigs,
    ConfigChange,
)
from tidelog.config.describe import DescribedSetting, describe_broker, describe_topic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import ConfigOperation, ConfigResourceType
from tidelog.protocol.messages import alter_configs as full
from tidelog.protocol.messages import incremental_alter_configs as incremental
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.handlers.asked import distinct_by
from tidelog.server.pieces import LazyList
from tidelog.server.tools import ClusterContext

T = TypeVar("T")

# There are fewer settings than that.
_SETTINGS_MAX = 1_000


def describe_topic_settings(
    overrides: Mapping[str, str], context: ClusterContext
) -> Sequence[DescribedSetting]:
    """Every setting of a topic with these overrides on this broker."""
    return describe_topic(context.tools.config(), overrides)


def describe_configs(
    request: DescribeConfigsRequest, context: ClusterContext
) -> Generator[int, None, DescribeConfigsResponse]:
    resources, _ = yield from distinct_by(request.resources, "resource_type", "resource_name")
    results = (_describe(resource, request, context) for resource in resources)
    return DescribeConfigsResponse(results=LazyList(len(resources), results))


def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: ClusterContext
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        settings = _settings(resource, context)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    keys = resource.configuration_keys
    wanted = None if keys is None else frozenset(keys)
    result.configs = [
        _described(setting, request)
        for setting in settings
        if wanted is None or setting.name in wanted
    ]
    return result


def _settings(
    resource: DescribeConfigsResource, context: ClusterContext
) -> Sequence[DescribedSetting]:
    if resource.resource_type == ConfigResourceType.TOPIC:
        if not context.authorize_topic(Operation.DESCRIBE_CONFIGS, resource.resource_name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = context.image.topics.get(resource.resource_name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic_settings(topic.configs, context)
    if resource.resource_type != ConfigResourceType.BROKER:
        raise _unsupported(resource.resource_type)
    context.require(Operation.DESCRIBE_CONFIGS, CLUSTER)
    name = _broker_name(resource.resource_name, context)
    dynamic = context.image.broker_configs
    return describe_broker(
        context.tools.config(),
        dynamic_broker=None if name == "" else dynamic.get(name, {}),
        dynamic_default=dynamic.get("", {}),
    )


def _described(
    setting: DescribedSetting, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=setting.name,
        value=None if setting.is_sensitive else setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.is_sensitive,
        config_type=setting.type,
        documentation=setting.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(synonym.name, synonym.value, synonym.source)
            for synonym in setting.synonyms
        ]
    return result


async def alter_configs(
    request: full.AlterConfigsRequest, context: ClusterContext
) -> full.AlterConfigsResponse:
    response = full.AlterConfigsResponse()
    pace = context.pace()
    resources, repeated = await context.complete(_resources(request.resources))
    for resource in resources:
        await pace.step()
        result = full.AlterConfigsResourceResponse(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            _refuse_excess(resource, repeated)
            changes = [_set(config.name, config.value) for config in resource.configs]
            await _alter(resource, changes, context, replace=True, dry=request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        response.responses.append(result)
    return response


async def incremental_alter_configs(
    request: incremental.IncrementalAlterConfigsRequest, context: ClusterContext
) -> incremental.IncrementalAlterConfigsResponse:
    response = incremental.IncrementalAlterConfigsResponse()
    pace = context.pace()
    resources, repeated = await context.complete(_resources(request.resources))
    for resource in resources:
        await pace.step()
        result = incremental.AlterConfigsResourceResponse(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            _refuse_excess(resource, repeated)
            changes = [_change(config) for config in resource.configs]
            await _alter(resource, changes, context, replace=False, dry=request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        response.responses.append(result)
    return response


def _resources(
    resources: Iterable[T],
) -> Generator[int, None, tuple[list[T], set[Any]]]:
    return distinct_by(resources, "resource_type", "resource_name")


def _refuse_excess(
    resource: full.AlterConfigsResource | incremental.AlterConfigsResource, repeated: set[Any]
) -> None:
    """Refuse a resource that is named twice, as Kafka does, or with more settings than exist."""
    if (resource.resource_type, resource.resource_name) in repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    if len(resource.configs) > _SETTINGS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(resource.configs)} settings in one request; at most {_SETTINGS_MAX} are taken",
        )


def _set(name: str, value: str | None) -> ConfigChange:
    if value is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"setting {name} has no value")
    return ConfigChange(name, value)


def _change(config: incremental.AlterableConfig) -> ConfigChange:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"unknown operation {config.config_operation}"
        ) from None
    if operation is not ConfigOperation.DELETE and config.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"setting {config.name} has no value")
    return ConfigChange(config.name, config.value, operation)


async def _alter(
    resource: full.AlterConfigsResource | incremental.AlterConfigsResource,
    changes: list[ConfigChange],
    context: ClusterContext,
    *,
    replace: bool,
    dry: bool,
) -> None:
    name = resource.resource_name
    if len({change.name for change in changes}) != len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a setting is given twice")
    if resource.resource_type == ConfigResourceType.TOPIC:
        if not context.authorize_topic(Operation.ALTER_CONFIGS, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        await context.tools.submitter.submit(AlterTopicConfigs(name, changes, replace, dry))
    elif resource.resource_type == ConfigResourceType.BROKER:
        context.require(Operation.ALTER_CONFIGS, CLUSTER)
        broker = _broker_name(name, context)
        await context.tools.submitter.submit(AlterBrokerConfigs(broker, changes, replace, dry))
    else:
        raise _unsupported(resource.resource_type)


def _broker_name(name: str, context: ClusterContext) -> str:
    if name == "":
        return name
    if not name.isdecimal() or int(name) not in context.image.brokers:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}")
    return str(int(name))


def _unsupported(resource_type: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"resource type {resource_type} has no settings here; topics are 2, brokers are 4",
    )
