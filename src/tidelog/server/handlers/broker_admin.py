"""UnregisterBroker (64, versions 0 to 0) and UpdateFeatures (57, versions 0 to 2).

Behaviour: a broker is forgotten once it is stopped and has no replica any more; else the answer
says what to do first. Features have one level each, which goes with the version of the brokers:
setting a feature to it is taken, everything else is refused.
Versions: UpdateFeatures 2 has one error for all.
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


async def unregister_broker(
    request: UnregisterBrokerRequest, context: ClusterContext
) -> UnregisterBrokerResponse:
    try:
        context.require(Operation.ALTER, CLUSTER)
        await context.tools.submitter.submit(RemoveBroker(request.broker_id))
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
    results = []
    for update in updates:
        fault = _fault(update)
        code = ErrorCode.NONE if fault is None else ErrorCode.INVALID_UPDATE_VERSION
        results.append(UpdatableFeatureResult(update.feature, code, fault))
    response = UpdateFeaturesResponse(error_message=None)
    if context.version < 2:
        response.results = results
        return response
    refused = next((each for each in results if each.error_code), None)
    if refused is not None:
        response.error_code = refused.error_code
        response.error_message = (
            "The update failed for all features since the following feature had an error:"
            f" {refused.error_message}"
        )
    return response


def _fault(update: FeatureUpdateKey) -> str | None:
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
