"""DescribeConfigs (32, versions 1 to 4), AlterConfigs (33, 0 to 2),
IncrementalAlterConfigs (44, 0 to 1), ListConfigResources (74, 0 to 1).

Behaviour: topics (type 2), brokers (type 4; an empty name means the default of all brokers), the
loggers of a broker (type 8) and groups (type 32), which need not exist. Each setting has its
source, its synonyms in order of precedence, its type and, on request, its documentation. The
controller validates changes; each resource succeeds or fails as a whole. A change to the security
of a broker's listeners is first tried by that broker, which has the files that it names, whichever
broker you ask. If that broker does not answer, nothing is changed; if it is not running, it tries
the change when it starts.
Versions: ListConfigResources 0 lists only client metrics, and there are none.
Gaps: client metrics (type 16) and unknown types are refused with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Generator, Mapping, Sequence
from typing import Any, Final

from tidelog.client.faults import NetworkError, error_code
from tidelog.cluster.commands import AlterConfigs, ConfigChange
from tidelog.cluster.configs import altered_broker
from tidelog.cluster.min_isr import MIN_ISR, default_min_isr, min_isr_of
from tidelog.cluster.names import check_topic_name, named_broker
from tidelog.config import DescribedSetting, describe_broker, describe_group, describe_topic
from tidelog.config.security_settings import LISTENER_PREFIX
from tidelog.errors import ConfigError, ErrorCode, KafkaError
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
from tidelog.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.broker_loggers import alter_loggers, describe_loggers
from tidelog.server.handlers.asked import distinct_by
from tidelog.server.pieces import LazyList
from tidelog.server.secured_listener import check_security
from tidelog.server.tools import ClusterContext

_TRIAL_TIMEOUT_S: Final = 10.0


def describe_topic_settings(
    overrides: Mapping[str, str], replication_factor: int, context: ClusterContext
) -> Sequence[DescribedSetting]:
    """Every setting of a topic with these overrides on this broker.

    How many replicas must be in sync depends on how many there are, where the topic does not say.
    """
    settings = describe_topic(context.tools.config(), overrides)
    if MIN_ISR in overrides:
        return settings
    minimum = str(min_isr_of(overrides, default_min_isr(context.image), replication_factor))
    return [each._replace(value=minimum) if each.name == MIN_ISR else each for each in settings]


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
        if topic is None:
            return None
        return describe_topic_settings(topic.configs, topic.replication_factor, context)
    if resource == ConfigResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(config, image.group_configs.get(name, {}))
    if resource == ConfigResourceType.BROKER_LOGGER:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        _this_broker(name, context, "expected {} but")
        return describe_loggers()
    if name:
        name = _this_broker(name, context, "expected {} or empty string, but")
    own = image.broker_configs.get(name, {}) if name else None
    return describe_broker(
        config, dynamic_broker=own, dynamic_default=image.broker_configs.get("", {})
    )


def _this_broker(name: str, context: ClusterContext, expected: str) -> str:
    """Only this broker knows what it was started with, and what it logs."""
    own = context.tools.broker_id
    if named_broker(name, "Broker") != own:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, {expected.format(own)} received {name}",
        )
    return str(own)


def _authorize(operation: Operation, resource: int, name: str, context: ClusterContext) -> None:
    match resource:
        case ConfigResourceType.TOPIC:
            context.require_topic(operation, name)
        case ConfigResourceType.GROUP:
            context.require_group(operation, name)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            context.require(operation, CLUSTER)
        case ConfigResourceType.CLIENT_METRICS:
            context.require(operation, CLUSTER)
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics are not supported")
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
            full.AlterConfigsResourceResponse(*answer)
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
            asked_for = command(resource)
            if kind == ConfigResourceType.BROKER_LOGGER and not asked_for.replace:
                _alter_loggers(asked_for, context)
            else:
                if kind == ConfigResourceType.BROKER:
                    await _try_listeners(asked_for, resource, context)
                await context.tools.submitter.submit(asked_for, context.principal)
        except KafkaError as error:
            code, message = error.code, error.message
        yield code, message, kind, name


async def _try_listeners(command: AlterConfigs, resource: Any, context: ClusterContext) -> None:
    """Try what is altered of a broker's listeners: only that one has the files that are named."""
    if not command.name or not any(
        each.name.startswith(LISTENER_PREFIX) for each in command.changes
    ):
        return
    broker_id = named_broker(command.name)
    if broker_id == context.tools.broker_id:
        _check_listeners(command, context)
    elif broker_id in context.image.brokers:
        await _try_there(broker_id, command, resource, context)


def _check_listeners(command: AlterConfigs, context: ClusterContext) -> None:
    own, for_all = altered_broker(context.image, command), context.image.broker_configs.get("", {})
    try:
        check_security(context.tools.config().with_dynamic(own, for_all))
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


async def _try_there(
    broker_id: int, command: AlterConfigs, resource: Any, context: ClusterContext
) -> None:
    """Have the broker concerned try it, and alter nothing."""
    name, request = (
        ("AlterConfigs", full.AlterConfigsRequest([resource], validate_only=True))
        if command.replace
        else (
            "IncrementalAlterConfigs",
            incremental.IncrementalAlterConfigsRequest([resource], validate_only=True),
        )
    )
    try:
        answer = await context.tools.others.ask(broker_id, name, request, _TRIAL_TIMEOUT_S)
    except NetworkError as error:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Broker {broker_id}, which has the files, could not try it: {error}",
        ) from error
    (tried,) = answer.responses
    if tried.error_code:
        raise KafkaError(
            error_code(tried.error_code), f"broker {broker_id}: {tried.error_message or ''}"
        )


def _alter_loggers(command: AlterConfigs, context: ClusterContext) -> None:
    own = context.tools.broker_id
    if named_broker(command.name) != own:
        message = f"Unexpected node id. Expected {own}, but received {command.name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    alter_loggers(command)


def list_config_resources(
    request: ListConfigResourcesRequest, context: ClusterContext
) -> ListConfigResourcesResponse:
    if not context.authorize(Operation.DESCRIBE_CONFIGS, CLUSTER):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    image = context.image
    brokers = list(map(str, image.brokers))
    names: dict[int, Collection[str]] = {
        ConfigResourceType.TOPIC: image.topics,
        ConfigResourceType.BROKER: brokers,
        ConfigResourceType.BROKER_LOGGER: brokers,
        ConfigResourceType.CLIENT_METRICS: (),
        ConfigResourceType.GROUP: image.group_configs,
    }
    wanted = set(request.resource_types) or set(names)
    if context.version == 0:
        wanted = {ConfigResourceType.CLIENT_METRICS}
    if not wanted <= set(names):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = (ConfigResource(name, kind) for kind in sorted(wanted) for name in names[kind])
    count = sum(len(names[kind]) for kind in wanted)
    return ListConfigResourcesResponse(config_resources=LazyList(count, found))
