"""One request to one broker of a cluster that an image describes, answered by its handler."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tidelog.cluster.image import (
    BrokerRegistration,
    Endpoint,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from tidelog.config import BrokerConfig
from tidelog.host.clock import SystemClock
from tidelog.protocol.apis import api
from tidelog.protocol.framing import RequestHeader
from tidelog.protocol.schema import decode, encode_sized
from tidelog.security.authorizer import OpenAuthorizer, Principal
from tidelog.server.answer_cache import AnswerCache, EncodedAnswer
from tidelog.server.context import RequestContext, ServedApi
from tidelog.server.listener import ListenerAddress
from tidelog.server.metrics import ApiMetrics
from tidelog.server.pieces import Turns
from tidelog.server.routes import route

TOPIC_ID = UUID(int=7)


def broker(
    broker_id: int, host: str = "", listener: str = "PLAINTEXT", port: int = 9092
) -> BrokerRegistration:
    endpoint = Endpoint(listener, host or f"b{broker_id}", port + broker_id)
    return BrokerRegistration(broker_id, 100 + broker_id, f"rack{broker_id}", (endpoint,))


def topic(*states: PartitionState, name: str = "t") -> TopicImage:
    return TopicImage(name, TOPIC_ID, states, {})


def state(
    leader: int,
    replicas: Sequence[int] = (0, 1, 2),
    isr: Sequence[int] | None = None,
    partition: int = 0,
) -> PartitionState:
    in_sync = tuple(replicas) if isr is None else tuple(isr)
    return PartitionState(partition, leader, 5, tuple(replicas), in_sync)


def image(
    brokers: Sequence[BrokerRegistration],
    topics: Sequence[TopicImage] = (),
    absent: Sequence[BrokerRegistration] = (),
    controller_id: int = 0,
) -> MetadataImage:
    return MetadataImage(
        1,
        "cluster",
        controller_id,
        1,
        {each.id: each for each in brokers},
        {each.id: each for each in absent},
        {each.name: each for each in topics},
        {each.topic_id: each.name for each in topics},
    )


class Asking:
    """A client of broker 0, connected to it in one way or another."""

    def __init__(
        self,
        image: MetadataImage,
        *,
        listener: str = "PLAINTEXT",
        local: tuple[str, int] = ("10.0.0.1", 9092),
        advertised: tuple[str, int] | None = None,
        **tools: Any,
    ) -> None:
        self._shared: Any = SimpleNamespace(
            clock=SystemClock(),
            authorizer=OpenAuthorizer(),
            metadata=SimpleNamespace(image=image),
            turns=Turns(),
        )
        address = ListenerAddress(listener, "0.0.0.0", 9092, advertised)
        self._connection: Any = SimpleNamespace(
            principal=Principal("User:ANONYMOUS", False),
            listener=SimpleNamespace(name=listener, address=address),
            local_host=local[0],
            local_port=local[1],
        )
        self._tools = SimpleNamespace(
            broker_id=0, answers=AnswerCache(), config=BrokerConfig, **tools
        )

    def ask(self, name: str, version: int, request: object) -> Any:
        """The answer, as a client decodes it."""
        found = api(name)
        served = ServedApi(found, route(name), ApiMetrics(name), self._tools)
        header = RequestHeader(found.key, version, 1, "client")
        context = RequestContext(self._shared, served, self._connection, header)
        answer = route(name).handler(request, context)
        if isinstance(answer, Generator):
            answer = _finish(answer)
        if isinstance(answer, EncodedAnswer):
            body = answer.body
        else:
            parts, _ = encode_sized(answer, version)
            body = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
        return decode(found.response, version, body)[0]


def _finish(steps: Generator[int, None, Any]) -> Any:
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        return stop.value
