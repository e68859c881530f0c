"""A connection negotiates, pipelines, matches answers, and refuses what is no answer."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.unit.client.helpers import Peer, join, metadata_response, versions_response
from tidelog.client.connection import KEPT_BYTES_MAX, Call, Connection, Framer, KeptFramer
from tidelog.client.faults import NetworkError, UnsupportedApiError
from tidelog.client.metadata import ANY
from tidelog.errors import ProtocolError
from tidelog.protocol.apis import api
from tidelog.protocol.framing import decode_request_header, encode_response
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.produce import ProduceRequest


def metadata_call(**options: Any) -> Call:
    return Call(ANY, "Metadata", MetadataRequest(topics=[]), **options)


def answer_metadata(header: Any, message: Any) -> Any:
    return metadata_response()


def new_connection(max_frame_bytes: int = 1 << 20) -> Connection:
    return Connection("tester", max_frame_bytes, "broker:9092")


def test_calls_made_before_the_versions_are_known_are_sent_afterwards() -> None:
    connection, peer = new_connection(), Peer(answer_metadata)
    tickets = [connection.send(metadata_call()) for _ in range(3)]
    peer.exchange(connection)
    assert [answer.ticket for answer in connection.take_answers()] == tickets
    assert peer.requests[0][0].api_key == 18
    assert peer.requests[0][1].client_software_name == "tidelog"
    assert connection.outstanding == 0


def test_the_newest_version_that_both_sides_speak_is_used() -> None:
    connection = new_connection()
    peer = Peer(answer_metadata, versions_response(Metadata=(0, 5)))
    connection.send(metadata_call())
    peer.exchange(connection)
    connection.send(metadata_call(max_version=2))
    peer.exchange(connection)
    assert [header.api_version for header, _ in peer.requests[1:]] == [5, 2]


def refusal(keys: list[ApiVersion]) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=35, api_keys=keys)


@pytest.mark.parametrize(
    ("keys", "version"),
    [([ApiVersion(api_key=18, min_version=0, max_version=2)], 2), ([], 0)],
    ids=["named", "unnamed"],
)
def test_a_refused_negotiation_is_tried_in_the_version_that_the_broker_names(
    keys: list[ApiVersion], version: int
) -> None:
    connection, peer = new_connection(), Peer(answer_metadata)
    connection.send(metadata_call())
    first = join(connection.take_output())
    header, _ = decode_request_header(memoryview(first)[4:])
    answer = encode_response(api("ApiVersions"), 0, header.correlation_id, refusal(keys))
    connection.receive(join(answer))
    peer.exchange(connection)
    assert peer.requests[0][0].api_version == version
    assert connection.ready
    assert len(connection.take_answers()) == 1


def test_a_broker_that_refuses_even_version_0_is_given_up() -> None:
    connection, peer = new_connection(), Peer(answer_metadata, refusal([]))
    with pytest.raises(ProtocolError, match="error 35"):
        peer.exchange(connection)


def test_an_api_that_the_broker_lacks_is_an_answer_and_costs_no_connection() -> None:
    connection = new_connection()
    peer = Peer(answer_metadata, versions_response(DescribeCluster=(7, 9)))
    connection.send(Call(ANY, "DescribeCluster", DescribeClusterRequest()))
    connection.send(metadata_call())
    peer.exchange(connection)
    refused, served = connection.take_answers()
    assert isinstance(refused.outcome, UnsupportedApiError)
    assert served.outcome.cluster_id == "cluster"  # type: ignore[attr-defined]


def test_a_call_without_an_answer_is_over_once_it_is_sent() -> None:
    connection, peer = new_connection(), Peer(lambda header, message: None)
    connection.send(Call(1, "Produce", ProduceRequest(acks=0), answered=False))
    peer.exchange(connection)
    assert connection.take_answers() == [], "its bytes may still wait in the shell"
    assert connection.outstanding == 1
    connection.sent()
    assert [answer.outcome for answer in connection.take_answers()] == [None]
    assert connection.outstanding == 0


def test_a_call_without_an_answer_that_was_not_sent_fails_with_its_connection() -> None:
    connection, peer = new_connection(), Peer(lambda header, message: None)
    connection.send(Call(1, "Produce", ProduceRequest(acks=0), answered=False))
    peer.exchange(connection)
    lost = NetworkError("broker", "reset")
    connection.fail(lost)
    assert [answer.outcome for answer in connection.take_answers()] == [lost]


def test_bytes_of_a_large_frame_are_not_kept_where_they_came_from() -> None:
    framer, pieces = Framer(1 << 20), [bytes(100_000) for _ in range(3)]
    framer.feed((300_000).to_bytes(4, "big"))
    counts = [sys.getrefcount(piece) for piece in pieces]
    frames = [frame for piece in pieces for frame in framer.feed(piece)]
    assert [len(frame) for frame in frames] == [300_000]
    assert [sys.getrefcount(piece) for piece in pieces] == counts


def test_answers_may_come_in_any_pieces() -> None:
    connection, peer = new_connection(), Peer(answer_metadata)
    peer.exchange(connection)
    tickets = [connection.send(metadata_call()) for _ in range(4)]
    stream = peer.answers(join(connection.take_output()))
    for position in range(len(stream)):
        connection.receive(stream[position : position + 1])
    assert [answer.ticket for answer in connection.take_answers()] == tickets


def test_an_answer_out_of_order_ends_the_connection_and_fails_every_call() -> None:
    connection, peer = new_connection(), Peer(answer_metadata)
    peer.exchange(connection)
    tickets = [connection.send(metadata_call()) for _ in range(2)]
    stream = peer.answers(join(connection.take_output()))
    half = len(stream) // 2
    with pytest.raises(ProtocolError, match="was due"):
        connection.receive(stream[half:] + stream[:half])
    connection.fail(NetworkError("broker:9092", "lost"))
    answers = connection.take_answers()
    assert [answer.ticket for answer in answers] == tickets
    assert all(isinstance(answer.outcome, NetworkError) for answer in answers)


def test_an_answer_that_nobody_asked_for_is_refused() -> None:
    connection, peer = new_connection(), Peer(answer_metadata)
    peer.exchange(connection)
    with pytest.raises(ProtocolError, match="nobody asked"):
        connection.receive(b"\0\0\0\4\0\0\0\1")


def test_a_call_on_a_lost_connection_fails_at_once() -> None:
    connection = new_connection()
    connection.fail(NetworkError("broker:9092", "lost"))
    connection.send(metadata_call())
    assert isinstance(connection.take_answers()[0].outcome, NetworkError)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x7f\xff\xff\xff", "refused"),
        (b"\xff\xff\xff\xff", "refused"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
    ],
)
def test_a_frame_that_cannot_be_one_is_refused_before_it_is_awaited(
    data: bytes, words: str
) -> None:
    with pytest.raises(ProtocolError, match=words):
        Framer(1 << 20).feed(data)


BODIES = [b"", b"a", b"bc" * 300, b"d" * 70_000, b"e", b"f" * 65_533, b"g" * 65_532]


def test_frames_are_the_same_however_the_stream_is_cut() -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in BODIES)
    cuts = 0
    for size in (1, 3, 7, 64, 1000, 65_536, len(stream)):
        framer = Framer(1 << 20)
        frames: list[bytes] = []
        for position in range(0, len(stream), size):
            frames += [bytes(frame) for frame in framer.feed(stream[position : position + size])]
        assert frames == BODIES
        cuts += 1
    assert cuts == 7


def test_frames_are_the_same_where_large_ones_are_received_into_their_place() -> None:
    stream = memoryview(b"".join(len(body).to_bytes(4, "big") + body for body in BODIES))
    placed = 0
    for size in (3, 1000, 65_536, 131_072):
        framer, frames, position = Framer(1 << 20), list[bytes](), 0
        while position < len(stream):
            piece = stream[position : position + size]
            room = framer.room
            if room is None:
                frames += [bytes(frame) for frame in framer.feed(piece)]
            else:
                piece = piece[: len(room)]
                room[: len(piece)] = piece
                frames += [bytes(frame) for frame in framer.fill(len(piece))]
                placed += 1
            position += len(piece)
        assert frames == BODIES
        assert framer.room is None
    assert placed > 5


def test_frames_are_the_same_where_all_are_received_into_memory_that_is_kept() -> None:
    bodies = [*BODIES, b"h" * 600_000, b"i" * (KEPT_BYTES_MAX + 1), b"j", b"k" * 300_000]
    stream = memoryview(b"".join(len(body).to_bytes(4, "big") + body for body in bodies))
    for size in (1_000, 65_536, 1 << 20, len(stream)):
        framer, frames, position, kept = KeptFramer(1 << 25), list[bytes](), 0, set[int]()
        while position < len(stream):
            room = framer.room
            piece = stream[position : position + min(size, len(room))]
            room[: len(piece)] = piece
            frames += [bytes(frame) for frame in framer.fill(len(piece))]
            position += len(piece)
            kept.add(len(room.obj))
        assert frames == bodies
        assert [bytes(frame) for frame in KeptFramer(1 << 25).feed(stream)] == bodies
        assert max(kept) > KEPT_BYTES_MAX
        assert len(framer.room.obj) <= KEPT_BYTES_MAX, "what was for one frame goes with it"


def test_frames_that_came_together_hold_until_there_is_room_for_more() -> None:
    framer = KeptFramer(1 << 20)
    stream = b"\0\0\0\5first\0\0\0\6second\0\0\0\5th"
    framer.room[: len(stream)] = stream
    frames = framer.fill(len(stream))
    assert [bytes(frame) for frame in frames] == [b"first", b"second"]
    framer.room[:3] = b"ird"
    assert [bytes(frame) for frame in framer.fill(3)] == [b"third"]


@pytest.mark.parametrize("data", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"HTTP/1.1"])
def test_a_frame_that_cannot_be_one_is_refused_in_kept_memory_too(data: bytes) -> None:
    framer = KeptFramer(1 << 20)
    framer.room[: len(data)] = data
    with pytest.raises(ProtocolError, match=r"refused|HTTP"):
        framer.fill(len(data))
