"""UnregisterBroker (64, versions 0 to 0) and UpdateFeatures (57, versions 0 to 2).

Behaviour: a broker is removed once it is stopped and has no replicas left; otherwise the answer
says what to do first. Features have one level each, which depends on the version of the brokers:
setting a feature to that level is accepted; setting one to anything else refuses the whole request.
"""

from __future__ import annotations

from tidelog.cluster.commands import RemoveBroker
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tidelog.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.handlers.api_versions import FEATURES
from tidelog.server.handlers.asked import distinct_by
from tidelog.server.tools import ClusterContext

# An upgrade, a safe and an unsafe downgrade.
_UPGRADE_TYPES = (1, 2, 3)


async def unregister_broker(
    request: UnregisterBrokerRequest, context: ClusterContext
) -> UnregisterBrokerResponse:
    try:
        context.require(Operation.ALTER, CLUSTER)
        await context.tools.submitter.submit(RemoveBroker(request.broker_id), context.principal)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse(error_message=None)


async def update_features(
    request: UpdateFeaturesRequest, context: ClusterContext
) -> UpdateFeaturesResponse:
    if not context.authorize(Operation.ALTER, CLUSTER):
        error = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    updates, _ = await context.complete(distinct_by(request.feature_updates, "feature"))
    faults = [(update, _fault(update)) for update in updates]
    fault = next((fault for _, fault in faults if fault is not None), None)
    if fault is not None:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_UPDATE_VERSION,
            error_message="The update failed for all features since the following feature had an"
            f" error: {fault}",
        )
    results = []
    if context.version < 2:
        results = [UpdatableFeatureResult(update.feature, 0, None) for update in updates]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _fault(update: FeatureUpdateKey) -> str | None:
    if update.upgrade_type not in _UPGRADE_TYPES:
        return f"Invalid upgrade type {update.upgrade_type} for feature {update.feature}."
    level = FEATURES.get(update.feature)
    if level == update.max_version_level:
        return None
    supported = (
        "This cluster does not support the feature."
        if level is None
        else f"This cluster supports version {level} alone."
    )
    return (
        f"Invalid update version {update.max_version_level} for feature {update.feature}."
        f" {supported}"
    )
