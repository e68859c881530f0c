"""DescribeCluster (key 60), versions 0 to 2.

Behaviour: returns the brokers, their addresses as this client reaches them, the controller (-1 if
there is none), and on request what the client may do with the cluster. Brokers that are away are
shown as fenced, with their last address, if the client asks for them. Only brokers are described;
controllers have no separate listener here (endpoint type 2 is refused with
MISMATCHED_ENDPOINT_TYPE).
"""

from __future__ import annotations

from tidelog.errors import ErrorCode
from tidelog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.server.handlers.addresses import (
    NO_CONTROLLER,
    address_of,
    reachable,
    reachable_controller,
)
from tidelog.server.tools import ClusterContext

_BROKERS = 1
_CONTROLLERS = 2
_NOWHERE = ("", -1)


def describe_cluster(
    request: DescribeClusterRequest, context: ClusterContext
) -> DescribeClusterResponse:
    image = context.image
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to a listener of brokers, but asks for controllers",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    online = reachable(image, context)
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=(
            reachable_controller(image, online) if context.tools.is_controlled() else NO_CONTROLLER
        ),
        brokers=[
            DescribeClusterBroker(broker_id, *address, image.brokers[broker_id].rack)
            for broker_id, address in online.items()
        ],
    )
    if request.include_fenced_brokers:
        for broker in image.absent.values():
            address = address_of(broker, image, context) or _NOWHERE
            fenced = DescribeClusterBroker(broker.id, *address, broker.rack, is_fenced=True)
            response.brokers.append(fenced)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.cluster_operations()
    return response
