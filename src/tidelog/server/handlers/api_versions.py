"""ApiVersions (key 18), versions 0 to 4.

Behaviour: returns what this broker supports; a client with an unknown version gets version 0 of the
answer with error 35 and the supported versions. An invalid client software name is refused
(KIP-511). Features are those of Kafka that Tidelog has: `metadata.version` 30 means that the
answers are those of Kafka 4.3, `group.version` 1 that the new consumer protocol is available
(KIP-848), `transaction.version` 2 that every transaction has its own epoch (KIP-890). The others
are not listed, because there are no share groups or streams groups.
"""

from __future__ import annotations

import re

from tidelog.errors import ErrorCode
from tidelog.protocol.apis import API_VERSIONS_KEY, APIS, api
from tidelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tidelog.protocol.schema import encode
from tidelog.server.answer_cache import EncodedAnswer
from tidelog.server.tools import ClusterContext

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# The level of each; there are no others to go back to.
FEATURES = {"group.version": 1, "metadata.version": 30, "transaction.version": 2}
_OWN_CLIENT = "tidelog"


def api_versions(
    request: ApiVersionsRequest, context: ClusterContext
) -> ApiVersionsResponse | EncodedAnswer:
    if context.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE_NAME.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image, cache = context.image, context.tools.answers
    ours = context.version >= 3 and request.client_software_name == _OWN_CLIENT
    key = (context.api.key, context.version, ours)
    found = cache.find(image, key)
    if found is not None:
        return found
    response = ApiVersionsResponse(api_keys=_ranges(private=ours))
    if context.version >= 3:
        response.finalized_features_epoch = image.version
        for name, level in FEATURES.items():
            response.supported_features.append(SupportedFeatureKey(name, level, level))
            response.finalized_features.append(FinalizedFeatureKey(name, level, level))
    return cache.keep(image, key, encode(response, context.version))


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to a version of ApiVersions that is not served.

    It names the versions of ApiVersions alone, so that the client asks once more, in one that has
    features: with all of them franz-go goes on with what it got, and without transactions of
    version 2.
    """
    served = ApiVersion(API_VERSIONS_KEY, *api(API_VERSIONS_KEY).advertised)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[served])


def _ranges(*, private: bool) -> list[ApiVersion]:
    if private:
        return [ApiVersion(each.key, *each.offered) for each in APIS]
    return [ApiVersion(each.key, *each.advertised) for each in APIS if not each.private]
