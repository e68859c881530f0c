"""One request to one broker of a cluster that an image describes, answered by its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Sequence
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
from tidelog.security.authorizer import ANONYMOUS, OpenAuthorizer, Principal
from tidelog.server.answer_cache import AnswerCache, EncodedAnswer
from tidelog.server.context import RequestContext, ServedApi
from tidelog.server.listener import ListenerAddress
from tidelog.server.metrics import ApiMetrics
from tidelog.server.pieces import Turns
from tidelog.server.routes import route
from tidelog.server.throttling import Throttling
from tidelog.storage.slices import Slices

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
    """A client of a broker, of broker 0 as a rule, connected to it in one way or another."""

    def __init__(
        self,
        image: MetadataImage,
        *,
        listener: str = "PLAINTEXT",
        local: tuple[str, int] = ("10.0.0.1", 9092),
        advertised: tuple[str, int] | None = None,
        principal: Principal = ANONYMOUS,
        **tools: Any,
    ) -> None:
        self._shared: Any = SimpleNamespace(
            clock=SystemClock(),
            authorizer=OpenAuthorizer(),
            metadata=SimpleNamespace(image=image),
            turns=Turns(),
            throttling=Throttling(SystemClock()),
        )
        address = ListenerAddress(listener, "0.0.0.0", 9092, advertised)
        self._connection: Any = SimpleNamespace(
            principal=principal,
            listener=SimpleNamespace(name=listener, address=address),
            host="127.0.0.1",
            local_host=local[0],
            local_port=local[1],
        )
        given = {
            "broker_id": 0,
            "answers": AnswerCache(),
            "config": BrokerConfig,
            "is_controlled": lambda: True,
            **tools,
        }
        self._tools = SimpleNamespace(**given)

    def ask(self, name: str, version: int, request: object) -> Any:
        """The answer that comes at once, as a client decodes it."""
        answer = self._start(name, version, request)
        assert not isinstance(answer, Awaitable), f"{name} waits"
        return _decoded(name, version, answer)

    async def call(self, name: str, version: int, request: object) -> Any:
        """The answer, when it comes."""
        answer = self._start(name, version, request)
        return _decoded(name, version, await answer if isinstance(answer, Awaitable) else answer)

    def _start(self, name: str, version: int, request: object) -> Any:
        found = route(name)
        served = ServedApi(api(name), found, ApiMetrics(name), self._tools)
        header = RequestHeader(api(name).key, version, 1, "client")
        context = RequestContext(self._shared, served, self._connection, header)
        if found.prepare is not None:
            context.prepared = found.prepare(request, context)
        answer = found.handler(request, context)
        return _finish(answer) if isinstance(answer, Generator) else answer


def _decoded(name: str, version: int, answer: Any) -> Any:
    if isinstance(answer, EncodedAnswer):
        body = answer.body
    else:
        parts, _ = encode_sized(answer, version)
        body = b"".join(
            bytes(each.read_all()) if isinstance(each, Slices) else bytes(each)  # type: ignore[arg-type]
            for each in parts
        )
    return decode(api(name).response, version, body)[0]


def _finish(steps: Generator[int, None, Any]) -> Any:
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        return stop.value
