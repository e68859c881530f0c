"""The other end of a connection, without a socket: decodes requests, encodes chosen answers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tidelog.client.connection import Call, Connection, Framer
from tidelog.client.metadata import Cluster
from tidelog.client.operation import Pause
from tidelog.client.settings import ClientSettings
from tidelog.protocol.apis import API_BY_KEY, APIS
from tidelog.protocol.framing import RequestHeader, decode_request_header, encode_response
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.schema import decode

Respond = Callable[[RequestHeader, Any], Any]


def join(parts: list[Any]) -> bytes:
    return b"".join(bytes(part) for part in parts)


def versions_response(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    """Every API as declared, except those named with another range."""
    keys = [
        ApiVersion(api_key=api.key, min_version=low, max_version=high)
        for api in APIS
        for low, high in [ranges.get(api.name, api.served)]
    ]
    return ApiVersionsResponse(api_keys=keys)


@dataclass
class Peer:
    """A broker's end: `exchange` answers everything that the connection has to say."""

    respond: Respond
    versions: ApiVersionsResponse = field(default_factory=versions_response)
    requests: list[tuple[RequestHeader, Any]] = field(default_factory=list)
    framer: Framer = field(default_factory=lambda: Framer(1 << 26))

    def answers(self, data: bytes) -> bytes:
        output = b""
        for frame in self.framer.feed(data):
            header, position = decode_request_header(frame)
            api = API_BY_KEY[header.api_key]
            message, _ = decode(api.request, header.api_version, frame, position)
            self.requests.append((header, message))
            answer = self.versions if api.name == "ApiVersions" else self.respond(header, message)
            if answer is not None:
                refused = api.name == "ApiVersions" and answer.error_code == 35
                version = 0 if refused else header.api_version
                parts = encode_response(api, version, header.correlation_id, answer)
                output += join(parts)
        return output

    def exchange(self, connection: Connection) -> None:
        while output := connection.take_output():
            connection.receive(self.answers(join(output)))


class ManualClock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


TOPIC_ID = UUID(int=77)


def metadata_response(
    topic: str = "orders", leaders: dict[int, int] | None = None, *, epoch: int = 0, error: int = 0
) -> MetadataResponse:
    """One topic with a leader per partition; brokers 1 to 3."""
    leaders = {0: 1} if leaders is None else leaders
    return MetadataResponse(
        cluster_id="cluster",
        controller_id=1,
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"b{node}", port=9092) for node in (1, 2, 3)
        ],
        topics=[
            MetadataResponseTopic(
                error_code=error,
                name=topic,
                topic_id=TOPIC_ID,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=number,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=[leader],
                        isr_nodes=[leader],
                    )
                    for number, leader in leaders.items()
                ],
            )
        ],
    )


def known_cluster(leaders: dict[int, int] | None = None) -> tuple[Cluster, ManualClock]:
    """A cluster whose metadata names the topic `orders`."""
    clock = ManualClock()
    cluster = Cluster("boot:9092", ClientSettings(), clock)
    cluster.apply(metadata_response(leaders=leaders))
    return cluster, clock


def drive(
    operation: Generator[Any, Any, Any], answer: Callable[[Call], Any], clock: ManualClock
) -> Any:
    """Run an operation with `answer` as all the brokers there are; pauses pass at once."""
    outcomes: Any = None
    while True:
        try:
            step = operation.send(outcomes)
        except StopIteration as stop:
            return stop.value
        if isinstance(step, Pause):
            clock.now += step.seconds
            outcomes = None
        else:
            outcomes = [answer(call) for call in step]
