"""Where a client reaches the brokers: those that live, on the listener that it came in on."""

from __future__ import annotations

from collections.abc import Container

from tidelog.cluster.image import BrokerRegistration, MetadataImage
from tidelog.server.context import RequestContext
from tidelog.server.tools import ClusterTools, DataTools, GroupTools

NO_CONTROLLER = -1
Address = tuple[str, int]
Context = RequestContext[ClusterTools] | RequestContext[GroupTools] | RequestContext[DataTools]


def reachable(image: MetadataImage, context: Context) -> dict[int, Address]:
    """Host and port by broker id; without those that have no listener of the client's."""
    found = {}
    for broker in image.brokers.values():
        address = address_of(broker, image, context)
        if address is not None:
            found[broker.id] = address
    return found


def address_of(
    broker: BrokerRegistration, image: MetadataImage, context: Context
) -> Address | None:
    """Where this client reaches a broker: for ourselves, where it has just reached us.

    A broker that registered under the same host as we did runs beside us, so it has the name or
    address under which the client knows this machine.
    """
    connection, own_id = context.connection, context.tools.broker_id
    listener = connection.listener
    is_advertised = listener.address.advertised is not None
    if broker.id == own_id and not is_advertised:
        return connection.local_host, connection.local_port
    endpoint = broker.endpoint(listener.name)
    if endpoint is None:
        return None
    if not is_advertised:
        own = image.brokers.get(own_id) or image.absent.get(own_id)
        beside = own.endpoint(listener.name) if own is not None else None
        if beside is not None and beside.host == endpoint.host:
            return connection.local_host, endpoint.port
    return endpoint.host, endpoint.port


def reachable_controller(image: MetadataImage, online: Container[int]) -> int:
    """The controller, where clients can reach it."""
    return image.controller_id if image.controller_id in online else NO_CONTROLLER
