"""DescribeConfigs (32, versions 1 to 4), AlterConfigs (33, 0 to 2),
IncrementalAlterConfigs (44, 0 to 1).

Behaviour: topics (type 2), brokers (type 4; an empty name means the default of all brokers) and
groups (type 32), which need not exist. Each setting comes with its source, its synonyms in the
order in which they are asked, its type and, on request, its help. The controller judges what is
altered; each resource is done wholly or not at all.
Gaps: other resource types are refused with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from typing import Any

from tidelog.cluster.commands import AlterConfigs, ConfigChange
from tidelog.cluster.names import check_topic_name
from tidelog.config import DescribedSetting, describe_broker, describe_group, describe_topic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import ConfigResourceType
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
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        settings = _settings(resource.resource_type, resource.resource_name, context)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    if settings is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result
    # Nothing asked for is everything, as in Kafka.
    wanted = frozenset(resource.configuration_keys or ())
    result.configs = [
        _described(setting, request) for setting in settings if not wanted or setting.name in wanted
    ]
    return result


def _settings(
    resource: int, name: str, context: ClusterContext
) -> Sequence[DescribedSetting] | None:
    """What a resource has set; None for a topic that does not exist."""
    _authorize(Operation.DESCRIBE_CONFIGS, resource, name, context)
    config, image = context.tools.config(), context.image
    if resource == ConfigResourceType.TOPIC:
        check_topic_name(name)
        topic = image.topics.get(name)
        return None if topic is None else describe_topic_settings(topic.configs, context)
    if resource == ConfigResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(config, image.group_configs.get(name, {}))
    own = image.broker_configs.get(_this_broker(name, context), {}) if name else None
    return describe_broker(
        config, dynamic_broker=own, dynamic_default=image.broker_configs.get("", {})
    )


def _this_broker(name: str, context: ClusterContext) -> str:
    """Only this broker knows what it was started with."""
    own = context.tools.broker_id
    if not name.lstrip("+-").isdecimal():
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        )
    if int(name) != own:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own} or empty string, but received {name}",
        )
    return str(own)


def _authorize(operation: Operation, resource: int, name: str, context: ClusterContext) -> None:
    match resource:
        case ConfigResourceType.TOPIC:
            if not context.authorize_topic(operation, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        case ConfigResourceType.GROUP:
            context.require_group(operation, name)
        case ConfigResourceType.BROKER:
            context.require(operation, CLUSTER)
        case unknown:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {unknown}")


def _described(
    setting: DescribedSetting, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
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
    def command(resource: full.AlterConfigsResource) -> AlterConfigs:
        changes = [ConfigChange(config.name, config.value) for config in resource.configs]
        return _command(resource, changes, replace=True, validate_only=request.validate_only)

    return full.AlterConfigsResponse(
        responses=[
            full.AlterConfigsResourceResponse(*answer)
            async for answer in _alter(request.resources, command, context)
        ]
    )


async def incremental_alter_configs(
    request: incremental.IncrementalAlterConfigsRequest, context: ClusterContext
) -> incremental.IncrementalAlterConfigsResponse:
    def command(resource: incremental.AlterConfigsResource) -> AlterConfigs:
        changes = [
            ConfigChange(config.name, config.value, config.config_operation)
            for config in resource.configs
        ]
        return _command(resource, changes, replace=False, validate_only=request.validate_only)

    return incremental.IncrementalAlterConfigsResponse(
        responses=[
            incremental.AlterConfigsResourceResponse(*answer)
            async for answer in _alter(request.resources, command, context)
        ]
    )


def _command(
    resource: Any, changes: list[ConfigChange], *, replace: bool, validate_only: bool
) -> AlterConfigs:
    return AlterConfigs(
        resource.resource_type, resource.resource_name, changes, replace, validate_only
    )


async def _alter(
    asked: Sequence[Any], command: Callable[[Any], AlterConfigs], context: ClusterContext
) -> AsyncIterator[tuple[int, str | None, int, str]]:
    """Alter one resource after the other: the code, the message, and which resource it was."""
    pace = context.pace()
    resources, repeated = await context.complete(
        distinct_by(asked, "resource_type", "resource_name")
    )
    for resource in resources:
        await pace.step()
        kind, name = resource.resource_type, resource.resource_name
        code, message = ErrorCode.NONE, None
        try:
            if (kind, name) in repeated:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            _authorize(Operation.ALTER_CONFIGS, kind, name, context)
            await context.tools.submitter.submit(command(resource))
        except KafkaError as error:
            code, message = error.code, error.message
        yield code, message, kind, name
